// Sums over the rows of a matrix, in two stages: each block writes a row of partial sums, and a
// second kernel adds these up. The order depends on the shape alone.
#pragma once

#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/overlap.h"

namespace fusedops {

constexpr int kSumThreads =
    256;  // threads of a block: many, so that many rows are summed before a partial sum is written

// The tiling of the first stage. The blocks are few enough that the partial sums are a small part
// of the traffic, and enough to fill any GPU. They are the same on every GPU, so that the sum's
// bits are too.
inline Tiling sum_tiling(std::int64_t rows, std::int64_t cols, const void* bias, int lanes) {
  constexpr std::int64_t kBlocks = 1024;
  constexpr std::int64_t kLeastSteps = 8;
  const Tiling t = tile(rows, cols, bias, lanes, kSumThreads, gpu::kWarpSize);
  const std::int64_t groups = std::max<std::int64_t>(1, kBlocks / t.col_tiles);
  const std::int64_t steps = ceil_div(t.periods, groups * t.height);
  return with_steps(t, static_cast<int>(std::max(steps, kLeastSteps)));
}

// Adds the sums of the block's threads that have the same columns, which means the same
// threadIdx.x. Writes the first `count` totals to `partial`. `shared` has room for kSumThreads
// vectors. All threads of the block must call it.
template <class A, int V>
FUSEDOPS_DEVICE void sum_block(A* __restrict__ partial, const A (&sum)[V], A* shared, int count) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < V; ++i) shared[i * kSumThreads + thread] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    A total = 0;
#pragma unroll 1
    for (unsigned row = 0; row < blockDim.y; ++row) {
      total += shared[i * kSumThreads + row * blockDim.x + threadIdx.x];
    }
    partial[i] = total;
  }
}

namespace column_sum_detail {

constexpr int kColumns = 32;  // of a block
constexpr int kRows = 8;

// The sum of each column of the [rows, cols] partial sums and of the `tail` values after them, the
// first of which belongs to column `tail_column`.
template <class T>
__global__ void __launch_bounds__(kColumns* kRows)
    column_sum_kernel(T* __restrict__ out, const Accumulator<T>* __restrict__ partial,
                      std::int64_t rows, std::int64_t cols, int tail, std::int64_t tail_column) {
  using A = Accumulator<T>;
  __shared__ A shared[kRows][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  A sum = 0;
  overlap::wait_in_turn();
  if (column < cols) {
#pragma unroll 16
    for (std::int64_t row = threadIdx.y; row < rows; row += kRows) {
      sum += partial[row * cols + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  A total = 0;
  for (int row = 0; row < kRows; ++row) total += shared[row][threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < tail; ++i) {
    if (tail_column == column) total += partial[rows * cols + i];
    tail_column = tail_column + 1 == cols ? 0 : tail_column + 1;
  }
  out[column] = narrow<T>(total);
}

}  // namespace column_sum_detail

// The second stage. Rows of partial sums that are one period (tiling.h) wide are read as rows of
// `cols` columns. `tail` more values follow them, from column `tail_column` on.
template <class T>
gpu::Status column_sum(T* out, const Accumulator<T>* partial, std::int64_t rows, std::int64_t cols,
                       int tail, std::int64_t tail_column, gpu::Stream stream) {
  using namespace column_sum_detail;
  return overlap::launch(&column_sum_kernel<T>, ceil_div(cols, kColumns), dim3(kColumns, kRows),
                         stream, out, partial, rows, cols, tail, tail_column);
}

}  // namespace fusedops
