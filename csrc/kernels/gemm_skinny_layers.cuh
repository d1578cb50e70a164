// The skinny GEMM kernel for a 16-bit weight whose rows are contiguous.
//
// Each warp of a block computes 16 columns: 8 of the block's first half, and 8 of its second, which
// are the gates in a gated call. The block copies a layer, some rows of its part of the
// weight, to shared memory asynchronously and several layers ahead, so that many bytes are on their
// way at once. A warp's copy then fills whole lines of shared memory, or the GPU would split it and
// read parts of it twice. The blocks of a cluster take every other layer.
#pragma once

#include "kernels/gemm_skinny_block.cuh"

namespace fusedops::kernels::gemm_skinny_detail {

// A layout: warps of a block, rows of a layer, layers in shared memory.
template <class T_, int kWarps_, int kLayer_, int kSlots_>
struct Layers {
  using T = T_;
  static constexpr int kWarps = kWarps_, kLayer = kLayer_, kSlots = kSlots_;
  static constexpr int kThreads = kWarps * warp::kWidth;
  static constexpr int kVectors = kWarps * 2;   // in a row of a layer: 8 columns each
  static constexpr int kPlaces = kVectors * 8;  // columns of the weight
  static constexpr int kAtOnce = 16;            // rows that the block's threads copy at once
  static constexpr int kXVectors = kLayer / 8;  // in a row of x's part
  static constexpr int kPitch = kVectors * 16, kXPitch = kXVectors * 16;  // bytes
  static constexpr int kSlot = kLayer * kPitch + kRows * kXPitch;         // bytes
  static constexpr int kShared = kSlots * kSlot;
};

// Where a row has a vector: rows of whole lines are swizzled, so that load_matrices reads each of
// its eight rows from other banks.
FUSEDOPS_DEVICE int swizzled(int row, int vector) { return (vector ^ row % 8) * 16; }

// Copies the block's layers, one after the other.
template <class L>
struct LayerSource {
  using T = typename L::T;

  const ProblemShape& shape;
  const T* x;
  const char* weight;  // the thread's vector of the next layer's first rows
  const T* nothing;    // an address for copies of zeros
  shared::Address slots, to;
  bool in_weight;
  int at, stride;  // the next layer's first row; rows from it to the block's next one
  int slot = 0;    // of the next layer

  FUSEDOPS_DEVICE LayerSource(const ProblemShape& shape_, const T* x_, const void* weight_,
                              shared::Address slots_, std::int64_t first)
      : shape(shape_), x(x_), nothing(x_), slots(slots_) {
    const int vector = threadIdx.x % L::kVectors, row = threadIdx.x / L::kVectors;
    const std::int64_t column = first + vector / L::kWarps * shape.second + vector % L::kWarps * 8;
    in_weight = column < shape.all;
    at = cluster::rank() * L::kLayer;
    stride = cluster::size() * L::kLayer;
    weight = static_cast<const char*>(weight_) + (at + row) * std::int64_t{shape.pitch} +
             (in_weight ? column : 0) * 2;
    fetch::make_opaque(weight);
    to = slots + row * L::kPitch + swizzled(row, vector);
  }

  // Visits the thread's vectors of the next layer: a row, an address, whether the vector exists.
  template <class Visit>
  FUSEDOPS_DEVICE void each(Visit visit) const {
    const int row = at + threadIdx.x / L::kVectors;
#pragma unroll
    for (int i = 0; i < L::kLayer; i += L::kAtOnce) {
      visit(i, weight + std::uint64_t{shape.pitch} * i, in_weight && row + i < shape.inner);
    }
  }

  // Prefetches the weight's bytes that are copied first.
  FUSEDOPS_DEVICE void ask_for() const {
    each([](int, const char* from, bool exists) {
      if (exists) fetch::into_l2(from);
    });
  }

  // Starts to copy the thread's vector of x that goes with the next layer.
  FUSEDOPS_DEVICE void copy_x(int begin) {
    const int row = threadIdx.x / L::kXVectors, vector = threadIdx.x % L::kXVectors;
    const int k = at + vector * 8;
    const bool exists = row < shape.rows && k < shape.inner;
    async_copy::start(
        slots + begin + L::kLayer * L::kPitch + row * L::kXPitch + swizzled(row, vector),
        exists ? x + row * std::int64_t{shape.inner} + k : nothing, exists);
  }

  // Starts to copy the next layer, with zeros past the end.
  FUSEDOPS_DEVICE void copy() {
    const int begin = slot * L::kSlot;
    each([&](int i, const char* from, bool exists) {
      const void* address = exists ? static_cast<const void*>(from) : nothing;
      async_copy::start(to + begin + i * L::kPitch, address, exists);
    });
    if (threadIdx.x < kRows * L::kXVectors) copy_x(begin);
    async_copy::commit_group();
    at += stride;
    weight += std::uint64_t{shape.pitch} * stride;
    slot = slot + 1 == L::kSlots ? 0 : slot + 1;
  }
};

// sums += the product of the warp's columns of a layer, as matrix a of platform/tensor_core.h, with
// x, as b. Threads pass the rows of four [8, 8] matrices.
template <class L>
FUSEDOPS_DEVICE void multiply_add(float (&sums)[4], shared::Address slot) {
  const int lane = threadIdx.x % warp::kWidth, warp = threadIdx.x / warp::kWidth;
  const shared::Address x = slot + L::kLayer * L::kPitch + lane % 8 * L::kXPitch;
  const shared::Address weight = slot + (lane / 16 * 8 + lane % 8) * L::kPitch +
                                 swizzled(lane, lane / 8 % 2 * L::kWarps + warp);
#pragma unroll
  for (int i = 0; i < L::kLayer / 16; i += 2) {
    unsigned both[4];
    tensor_core::load_matrices(both, x + swizzled(lane, i * 2 + lane / 8));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      unsigned a[4];
      const unsigned b[2] = {both[j * 2], both[j * 2 + 1]};
      tensor_core::load_matrices<true>(a, weight + (i + j) * 16 * L::kPitch);
      tensor_core::multiply_add<typename L::T>(sums, a, b);
    }
  }
}

// Adds up the sums of the cluster's blocks. The warps divide them: whether this one has some.
template <class L>
FUSEDOPS_DEVICE bool add_up(float (&sums)[4], float* shared, int warp) {
  const unsigned blocks = cluster::size();
  __syncthreads();  // the layers are no longer read
#pragma unroll
  for (int i = 0; i < 4; ++i) shared[i * L::kThreads + threadIdx.x] = sums[i];
  cluster::sync();
  const bool mine = warp % blocks == cluster::rank();
  if (mine) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = total(shared[i * L::kThreads + threadIdx.x], blocks);
  }
  cluster::sync();  // the other blocks read this block's sums until here
  return mine;
}

template <class L>
__device__ __forceinline__ void run_by_layers(ProblemShape shape, typename L::T* y,
                                              const typename L::T* x, const void* weight,
                                              const typename L::T* bias) {
  FUSEDOPS_DYNAMIC_SHARED(char, memory);
  const int warp = threadIdx.x / warp::kWidth, lane = threadIdx.x % warp::kWidth;
  const std::int64_t cluster = cluster::number();
  const std::int64_t first = cluster * (shape.gated ? L::kPlaces / 2 : L::kPlaces);
  const shared::Address slots = shared::address_of(memory);
  LayerSource<L> source(shape, x, weight, slots, first);
  source.ask_for();
  // The next kernel's blocks would take places beside this one's, several on some multiprocessors.
  // So it may not start before the loop below ends.
  overlap::wait(false);

  float sums[4] = {};
  const int begin = source.at;
#pragma unroll
  for (int i = 0; i < L::kSlots - 1; ++i) source.copy();
  int slot = 0;
#pragma unroll 1
  for (int at = begin; at < shape.inner; at += source.stride) {
    async_copy::wait_group(L::kSlots - 2);
    __syncthreads();
    source.copy();
    multiply_add<L>(sums, slots + slot * L::kSlot);
    slot = slot + 1 == L::kSlots ? 0 : slot + 1;
  }
  overlap::allow_next();
  async_copy::wait_group(0);

  if (cluster::size() > 1 && !add_up<L>(sums, reinterpret_cast<float*>(memory), warp)) return;
  const std::int64_t column = first + warp * 8 + lane / kQuad;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane % kQuad * 2 + i;
    if (row >= shape.rows) continue;
    store(shape, y, bias, row, column, sums[i], sums[i + 2]);
    if (!shape.gated) store(shape, y, bias, row, column + shape.second, sums[i + 2]);
  }
}

template <class L>
__global__ void __launch_bounds__(L::kThreads)
    by_layers(ProblemShape shape, typename L::T* y, const typename L::T* x, const void* weight,
              const typename L::T* bias) {
  if constexpr (tensor_core::kSupported) {
    run_by_layers<L>(shape, y, x, weight, bias);
  } else {
    gpu::trap();  // gemm_skinny_takes returns false here
  }
}

}  // namespace fusedops::kernels::gemm_skinny_detail
