// softmax of rows of whole vectors, with a mask or alibi. A thread copies its next row to shared
// memory while it computes a row.
#pragma once

#include "kernels/softmax_resident.cuh"
#include "kernels/tiling.h"
#include "platform/device.h"
#include "platform/shared.h"

namespace fusedops::softmax_row {

// The vectors of shared memory that a thread needs for each of its vectors of scores: one for the
// scores, and those of the mask. A boolean mask is small: it is read when it is needed.
template <class T, Masking kMasking>
constexpr int kPlaces =
    kMasking == Masking::boolean ? 1
                                 : 1 + static_cast<int>(sizeof(MaskOf<T, kMasking>) / sizeof(T));

// Sets the scores of dropped keys to -inf.
template <class T>
FUSEDOPS_DEVICE void drop(Packed& raw, const Neighbours<bool, kLanes<T>>& keep) {
  const Packed nothing = pack_copies(narrow<T>(kNothing<float>));
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kLanes<T> / 2; ++i) {
      const unsigned mask = math::spread_bools(keep.units.each[i / 2], i % 2);
      raw.word[i] = (raw.word[i] & mask) | (nothing.word[i] & ~mask);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((keep.units.each[0] >> 8 * i & 1) == 0) raw.word[i] = nothing.word[i];
    }
  }
}

// Threads, vectors and the warps' peaks are used as in softmax_resident.cuh. A thread has places of
// its own in shared memory for its vectors, so it can start to copy the next row as soon as it has
// this row's scores in registers. A mask stays there while the next rows use the same.
template <class T, Masking kMasking>
class PrefetchedRows {
  static constexpr int V = kLanes<T>, kCount = kPlaces<T, kMasking>;
  static constexpr bool kBoolean = kMasking == Masking::boolean;
  using M = MaskOf<T, kMasking>;
  using Masks = Neighbours<M, V>;

 public:
  static constexpr int kVectors = 4, kMostThreads = 1024;

  FUSEDOPS_DEVICE PrefetchedRows(const SoftmaxParams& params, const T* scores, Packed* places)
      : params_(params), scores_(scores), places_(places + threadIdx.y * blockDim.x) {}

  // Starts to copy row `at`.
  FUSEDOPS_DEVICE void fetch(unsigned at, bool first) {
    const RowIndex<unsigned> index = params_.index(at);
    const std::int64_t mask = start(params_.mask, index);
    const KeyRange<int> seen = params_.visibility.of(static_cast<int>(index.query));
    const bool same = !first && mask == mask_ && seen.first == seen_.first && seen.end == seen_.end;
    row = params_.first(at, index);
    mask_ = mask;
    seen_ = seen;
    slope_ = params_.alibi.type != ScoreBias::Type::none
                 ? params_.slopes * slope_of<T>(params_.alibi, index.head)
                 : 0;
    copy<1>(as_packed(scores_ + row), 0);
    if constexpr (!kBoolean) {
      if (!same) copy<kCount - 1>(as_packed(static_cast<const M*>(params_.mask.data) + mask), 1);
    }
    async_copy::commit_group();
  }

  // Waits for the row, and computes z, the numbers that softmax is taken of.
  FUSEDOPS_DEVICE void take(float (&z)[kVectors][V]) {
    fetch::make_opaque(thread);
    Masks masks[kVectors];
    const bool drops = kBoolean && params_.mask.type != ScoreBias::Type::none;
    if (drops) {
      const M* const mask = static_cast<const M*>(params_.mask.data) + mask_;
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (is_seen(k)) masks[k] = Masks::read(mask + column(k));
      }
    }
    async_copy::wait_group(0);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      Packed raw = place(k, 0);
      if constexpr (kBoolean) {
        if (drops) drop<T>(raw, masks[k]);
      }
      widen<T>(z[k], raw);
      if constexpr (!kBoolean) add(z[k], k);
      if (slope_ != 0) slant(z[k], static_cast<float>(column(k) - (seen_.end - 1)));
      hide(z[k], column(k));
    }
  }

  FUSEDOPS_DEVICE void store(T* y, std::int64_t to, const float (&z)[kVectors][V]) {
    fetch::make_opaque(thread);
    Packed* const out = as_packed(y + to);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (column(k) < params_.visibility.keys) out[thread + k * blockDim.x] = pack(narrow<T>(z[k]));
    }
  }

  std::int64_t row = 0;  // index of the row's first score
  unsigned thread =
      threadIdx.x;  // made opaque again and again: values derived from it would take registers

 private:
  FUSEDOPS_DEVICE int column(int k) const { return static_cast<int>(thread + k * blockDim.x) * V; }
  FUSEDOPS_DEVICE bool is_seen(int k) const {
    return column(k) < seen_.end && column(k) + V > seen_.first;
  }
  FUSEDOPS_DEVICE Packed& place(int k, int part) const {
    return places_[thread + (k * kCount + part) * blockDim.x * blockDim.y];
  }

  // Each of the thread's vectors corresponds to kParts vectors of `from`.
  template <int kParts>
  FUSEDOPS_DEVICE void copy(const Packed* from, int part) const {
    from += thread * kParts;
    if constexpr (async_copy::kSupported) {
      for_parts<kParts>([&](int k, int j) {
        async_copy::start(shared::address_of(&place(k, part + j)),
                          from + k * blockDim.x * kParts + j, is_seen(k));
      });
    } else {
      Packed parts[kVectors][kParts];
      for_parts<kParts>([&](int k, int j) {
        if (is_seen(k)) parts[k][j] = from[k * blockDim.x * kParts + j];
      });
      for_parts<kParts>([&](int k, int j) { place(k, part + j) = parts[k][j]; });
    }
  }
  template <int kParts, class Do>
  FUSEDOPS_DEVICE static void for_parts(const Do& act) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
#pragma unroll
      for (int j = 0; j < kParts; ++j) act(k, j);
    }
  }

  FUSEDOPS_DEVICE void add(float (&z)[V], int k) const {
    Packed parts[kCount - 1];
#pragma unroll
    for (int j = 0; j < kCount - 1; ++j) parts[j] = place(k, 1 + j);
    Masks mask;
    memcpy(&mask, parts, sizeof(mask));
    const auto lanes = mask.lanes();
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = with_mask(params_.scale, z[i], lanes.each[i]);
  }

  // Adds alibi relative to the row's last key, so that the numbers stay small.
  FUSEDOPS_DEVICE void slant(float (&z)[V], float from_last) const {
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  FUSEDOPS_DEVICE void hide(float (&z)[V], int column) const {
    if (column >= seen_.first && column + V <= seen_.end) return;
    const auto count = static_cast<unsigned>(seen_.end - seen_.first);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (static_cast<unsigned>(column - seen_.first + i) >= count) z[i] = kNothing<float>;
    }
  }

  const SoftmaxParams& params_;
  const T* scores_;
  Packed* places_;
  std::int64_t mask_ = 0;
  KeyRange<int> seen_{};
  float slope_ = 0;
};

// Turns the thread's part of a row, whose maximum is `top`, into exponentials. Returns the factor
// that makes them the result.
template <int kVectors, int V>
FUSEDOPS_DEVICE float exponentials(float (&z)[kVectors][V], float top, float factor,
                                   Peak<float>* shared) {
  top = reduce_lanes(top, blockDim.x, Max{});
  const float base = base_of(top);
  float sum = 0;
#pragma unroll
  for (auto& vector : z) {
    float part = 0;
#pragma unroll
    for (float& each : vector) {
      each = two_to((each - base) * factor);
      part += each;
    }
    sum += part;
  }
  sum = reduce_lanes(sum, blockDim.x, Sum{});
  const auto peak = peak_of_row<float>({top, sum}, factor, static_cast<int>(blockDim.x), shared);
  return two_to((top - peak.top) * factor) * inverse(peak.sum);
}

// Each row of threads of a block computes params.together rows, one after another.
template <class T, Masking kMasking>
__global__ void FUSEDOPS_LAUNCH_BOUNDS((PrefetchedRows<T, kMasking>::kMostThreads), 1)
    softmax_prefetched_kernel(T* __restrict__ y, const T* __restrict__ scores, unsigned count,
                              const SoftmaxParams params) {
  constexpr int kVectors = PrefetchedRows<T, kMasking>::kVectors;
  __shared__ Peak<float> shared[2][kMostWarps];
  FUSEDOPS_DYNAMIC_SHARED(Packed, places);
  overlap::wait();
  const unsigned first = (blockIdx.x * blockDim.y + threadIdx.y) * params.together;
  PrefetchedRows<T, kMasking> rows(params, scores, places);
  // Threads past the last row compute that row again.
  rows.fetch(min(first, count - 1), true);
#pragma unroll 1
  for (unsigned i = 1;; ++i) {
    float z[kVectors][kLanes<T>], top = kNothing<float>;
    rows.take(z);
#pragma unroll
    for (const auto& vector : z) {
#pragma unroll
      for (const float each : vector) top = fmaxf(top, each);
    }
    const std::int64_t row = rows.row;
    if (i < params.together) rows.fetch(min(first + i, count - 1), false);
    const float share = exponentials(z, top, params.factor, shared[i % 2]);
#pragma unroll
    for (auto& vector : z) {
#pragma unroll
      for (float& each : vector) each *= share;
    }
    rows.store(y, row, z);
    if (i >= params.together) return;
  }
}

}  // namespace fusedops::softmax_row

namespace fusedops::kernels::softmax_detail {

constexpr int kAlwaysAllowed =
    47 << 10;  // bytes of dynamic shared memory; static shared memory takes up to 1 KiB more

// The kernel for a call, with its block and its shared memory.
template <class T>
struct PrefetchedKernel {
  SoftmaxKernel<T> kernel;
  RowBlock block;
  int shared;  // bytes
};

template <class T, Masking kMasking>
PrefetchedKernel<T> prefetched_kernel(const Softmax& call) {
  constexpr int kVectors = PrefetchedRows<T, kMasking>::kVectors, kThreads = 128;
  const RowBlock block =
      row_block(ceil_div(call.keys, std::int64_t{kLanes<T> * kVectors}), kThreads);
  const std::int64_t places = block.threads * block.rows * kVectors * kPlaces<T, kMasking>;
  return {&softmax_prefetched_kernel<T, kMasking>, block, static_cast<int>(places * kVectorBytes)};
}

template <class T>
PrefetchedKernel<T> prefetched_for(const Softmax& call, Masking masking) {
  if (masking == Masking::boolean) return prefetched_kernel<T, Masking::boolean>(call);
  if constexpr (sizeof(T) < sizeof(float)) {
    if (masking == Masking::float32) return prefetched_kernel<T, Masking::float32>(call);
  }
  return prefetched_kernel<T, Masking::like_scores>(call);
}

// How many rows the same threads compute one after another. Several, where a multiprocessor holds
// only one or two blocks, so that copies go on while threads exchange maxima; and for masks wider
// than the scores, which several rows share. Only as many as leave enough work for all
// multiprocessors.
template <class T>
unsigned run_of(const Softmax& call, Masking masking, std::int64_t threads, int processors) {
  constexpr std::int64_t kThreads = 1024;  // threads of a multiprocessor
  const bool wide = masking == Masking::float32 && shares_mask(call);
  unsigned run = wide ? 8 : threads > kThreads / 2 ? kLanes<T> : threads > kThreads / 4 ? 2 : 1;
  while (run > 1 && call.rows() / run * threads < processors * kThreads * 9 / 10) run /= 2;
  return run;
}

template <class T>
gpu::Status launch_prefetched(const Softmax& call, const PrefetchedKernel<T>& prefetched,
                              Masking masking, unsigned run, void* y, const void* scores,
                              gpu::Stream stream) {
  SoftmaxParams params = params_of(call, shares_mask(call) && call.mask.query != 0, run);
  if (masking == Masking::boolean) {
    params.factor = static_cast<float>(kLog2E * call.scale);
    params.slopes = static_cast<float>(1 / call.scale);
  }
  if (prefetched.shared > kAlwaysAllowed) {
    const gpu::Status status = gpu::allow_shared(prefetched.kernel, prefetched.shared);
    if (status != gpu::kSuccess) return status;
  }
  const std::int64_t rows = call.rows(), of_block = prefetched.block.rows * run;
  overlap::Blocks blocks{dim3(static_cast<unsigned>(ceil_div(rows, of_block))),
                         prefetched.block.dim()};
  blocks.shared = static_cast<unsigned>(prefetched.shared);
  return overlap::launch(prefetched.kernel, blocks, stream, static_cast<T*>(y),
                         static_cast<const T*>(scores), static_cast<unsigned>(rows), params);
}

}  // namespace fusedops::kernels::softmax_detail
