// The kernel of gemm_decode.cu.
//
// A block computes tiles of 8 columns of the weight, and its warps divide the sums. A warp copies
// units, 128 elements of each column of a tile, to its ring in shared memory, several units ahead:
// two blocks of a multiprocessor have up to 128 KiB on their way. A weight that is constant, and
// gamma, are asked for before overlap::wait(), so they come while the kernel before this one still
// computes.
#pragma once

#include "kernels/gemm_skinny_block.cuh"
#include "kernels/reduce.cuh"
#include "platform/shared.h"

namespace fusedops::kernels::gemm_decode_detail {

using gemm_skinny_detail::activate;

constexpr int kWarps = 8;
constexpr int kBlock = kWarps * warp::kWidth;
constexpr int kColumns = 8;                  // of the weight, in a tile
constexpr int kRows = 8;                     // of x, at most
constexpr int kVectors = 16;                 // of a column, in a unit
constexpr int kUnit = kVectors * 8;          // elements of a column, in a unit
constexpr int kColumnBytes = kVectors * 16;  // of a column, in a unit
constexpr int kUnitBytes = kColumns * kColumnBytes;

struct DecodeShape {
  std::int64_t cols;    // of y
  std::int64_t second;  // columns of the weight from a value to its gate
  std::int64_t tiles;
  unsigned pitch;  // bytes from one column of the weight to the next
  int rows, inner;
  int units;  // of a column
  bool gated, constant;
  Activation activation;
  float inverse_inner, eps;

  FUSEDOPS_DEVICE int width() const { return gated ? kColumns / 2 : kColumns; }  // of y, in a tile
  // Bytes from one row of x to the next in shared memory: the next has other banks.
  FUSEDOPS_DEVICE unsigned x_pitch() const { return units * kColumnBytes + 16; }
};

// Where a unit has a vector of a column: load_matrices reads its eight columns from other banks.
FUSEDOPS_DEVICE int swizzled(int column, int vector) {
  return column * kColumnBytes + (vector ^ column % 8) * 16;
}

// Copies the warp's units, one after the other, to the slots of its ring.
template <int kSlots>
class UnitSource {
 public:
  FUSEDOPS_DEVICE UnitSource(const DecodeShape& shape, const void* weight, shared::Address ring)
      : shape_(shape), weight_(static_cast<const char*>(weight)), ring_(ring) {
    unit_ = threadIdx.x / warp::kWidth;
    tile_ = unit_ < shape.units ? blockIdx.x : shape.tiles;
  }

  // Starts to copy the next unit, with zeros past the end of the columns.
  FUSEDOPS_DEVICE void copy() {
    if (tile_ < shape_.tiles) {
      constexpr int kAtOnce = warp::kWidth / kVectors;  // columns that the warp copies at once
      const int lane = threadIdx.x % warp::kWidth, vector = lane % kVectors;
      const int width = shape_.width(), at = (unit_ * kVectors + vector) * 8;
#pragma unroll
      for (int i = 0; i < kColumns; i += kAtOnce) {
        const int place = i + lane / kVectors;
        const std::int64_t column = tile_ * width + place % width;
        const bool exists = column < shape_.cols && at < shape_.inner;
        const std::int64_t from = (column + (place >= width ? shape_.second : 0)) * shape_.pitch;
        async_copy::start(ring_ + slot_ * kUnitBytes + swizzled(place, vector),
                          weight_ + (exists ? from + at * 2 : 0), exists);
      }
      unit_ += kWarps;
      if (unit_ >= shape_.units) {
        unit_ = threadIdx.x / warp::kWidth;
        tile_ += gridDim.x;
      }
    }
    async_copy::commit_group();
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
  }

 private:
  const DecodeShape& shape_;
  const char* const weight_;
  const shared::Address ring_;
  std::int64_t tile_;  // of the next unit
  int unit_, slot_ = 0;
};

// Starts to copy gamma; all threads of the block together.
template <class T>
FUSEDOPS_DEVICE void copy_gamma(const DecodeShape& shape, const T* gamma, shared::Address to) {
  for (int v = threadIdx.x; v < shape.inner / 8; v += kBlock) {
    async_copy::start(to + v * 16, gamma + v * 8, true);
  }
  async_copy::commit_group();
}

// The block's threads copy x to shared memory, with zeros after each row, and normalise it if there
// is a gamma: the oldest asynchronous copy, before those of a ring. As many warps as there are for
// each row share it.
template <class T, int kSlots>
FUSEDOPS_DEVICE void load_x(const DecodeShape& shape, const T* x, const T* gamma, char* to) {
  __shared__ float squares[kWarps];
  int sharing = kWarps;
  while (sharing * shape.rows > kWarps) sharing /= 2;
  const int warp = threadIdx.x / warp::kWidth, row = warp / sharing;
  const int own = threadIdx.x - row * sharing * warp::kWidth, all = sharing * warp::kWidth;
  const int vectors = shape.inner / 8, places = row < shape.rows ? shape.units * kVectors : 0;
  const T* const from = x + row * std::int64_t{shape.inner};
  T* const into = reinterpret_cast<T*>(to + row * shape.x_pitch());
  float square = 0;
#pragma unroll 4
  for (int v = own; v < places; v += all) {
    float wide[8] = {};
    if (v < vectors) {
      const Vector<T> in = load(from + v * 8);
      widen(wide, in);
      store(into + v * 8, in);
    } else {
      store(into + v * 8, narrow<T>(wide));
    }
#pragma unroll
    for (const float each : wide) square = fmaf(each, each, square);
  }
  if (gamma) {
    square = warp::reduce(square, warp::kWidth, Sum{});
    if (threadIdx.x % warp::kWidth == 0) squares[warp] = square;
    async_copy::wait_group(kSlots);
    __syncthreads();
    square = 0;
    if (row < shape.rows) {
      for (int i = 0; i < sharing; ++i) square += squares[row * sharing + i];
    }
    const float scale = math::inverse_sqrt(fmaf(square, shape.inverse_inner, shape.eps));
    for (int v = own; v < min(places, vectors); v += all) {
      float wide[8], factor[8];
      widen(wide, load(into + v * 8));
      widen(factor, load(gamma + v * 8));
#pragma unroll
      for (int i = 0; i < 8; ++i) wide[i] = wide[i] * scale * factor[i];
      store(into + v * 8, narrow<T>(wide));
    }
  }
  __syncthreads();
}

// sums += the product of x, as matrix a of platform/tensor_core.h, with a unit's columns, as b.
// Threads pass the rows of four [8, 8] matrices.
template <class T>
FUSEDOPS_DEVICE void multiply_add(float (&sums)[4], shared::Address x, shared::Address unit) {
  const int lane = threadIdx.x % warp::kWidth;
#pragma unroll
  for (int i = 0; i < kVectors; i += 4) {
    unsigned rows[4], columns[4];
    tensor_core::load_matrices(rows, x + i * 16);
    tensor_core::load_matrices(columns, unit + swizzled(lane % 8, i + lane / 8));
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const unsigned a[4] = {rows[j], 0, rows[j + 1], 0}, b[2] = {columns[j], columns[j + 1]};
      tensor_core::multiply_add<T>(sums, a, b);
    }
  }
}

template <class T, int kSlots>
__device__ __forceinline__ void run_decode(const DecodeShape& shape, T* y, const T* x,
                                           const void* weight, const T* gamma, const T* residual) {
  FUSEDOPS_DYNAMIC_SHARED(char, memory);
  __shared__ float partial[2][kWarps][kRows][kColumns + 1];  // a tile's sums, and the next one's
  const int warp = threadIdx.x / warp::kWidth, lane = threadIdx.x % warp::kWidth;
  const shared::Address ring = shared::address_of(memory) + warp * kSlots * kUnitBytes;
  char* const x_rows = memory + kWarps * kSlots * kUnitBytes;
  T* const factors = reinterpret_cast<T*>(x_rows + shape.rows * shape.x_pitch());
  UnitSource<kSlots> source(shape, weight, ring);
  const auto fill = [&] {
    if (gamma) copy_gamma(shape, gamma, shared::address_of(factors));
#pragma unroll
    for (int i = 0; i < kSlots; ++i) source.copy();
  };
  // The next kernel's blocks find room as this one's end.
  overlap::allow_next();
  if (shape.constant) fill();
  overlap::wait(false);
  if (!shape.constant) fill();
  load_x<T, kSlots>(shape, x, gamma ? factors : nullptr, x_rows);

  // A row that x does not have is read as its last one; its result is dropped.
  const shared::Address x_row =
      shared::address_of(x_rows) + min(lane % 8, shape.rows - 1) * shape.x_pitch() + lane / 8 * 16;
  const int row = threadIdx.x / kColumns, place = threadIdx.x % kColumns, width = shape.width();
  int slot = 0, half = 0;
  for (std::int64_t tile = blockIdx.x; tile < shape.tiles; tile += gridDim.x, half ^= 1) {
    const std::int64_t column = tile * width + place;
    const bool is_result = row < shape.rows && place < width && column < shape.cols;
    const std::int64_t to = row * shape.cols + column;
    const float before = is_result && residual ? widen(residual[to]) : 0;
    float sums[4] = {};
    for (int unit = warp; unit < shape.units; unit += kWarps) {
      async_copy::wait_group(kSlots - 1);
      warp::sync();
      multiply_add<T>(sums, x_row + unit * kColumnBytes, ring + slot * kUnitBytes);
      warp::sync();
      source.copy();
      slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
    partial[half][warp][lane / 4][lane % 4 * 2] = sums[0];
    partial[half][warp][lane / 4][lane % 4 * 2 + 1] = sums[1];
    __syncthreads();
    if (!is_result) continue;
    const auto total = [&](int of) {
      float sum = partial[half][0][row][of];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += partial[half][i][row][of];
      return sum;
    };
    const float v = total(place);
    const float f = shape.gated ? v * activate<T>(shape.activation, total(place + width))
                                : activate<T>(shape.activation, v);
    y[to] = narrow<T>(f + before);
  }
  async_copy::wait_group(0);
}

template <class T, int kSlots>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(kBlock, 3)
    decode_kernel(const DecodeShape shape, T* y, const T* x, const void* weight, const T* gamma,
                  const T* residual) {
  if constexpr (tensor_core::kSupported) {
    run_decode<T, kSlots>(shape, y, x, weight, gamma, residual);
  } else {
    gpu::trap();  // gemm_decode_takes returns false here
  }
}

}  // namespace fusedops::kernels::gemm_decode_detail
