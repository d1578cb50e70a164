// The second stage of sums over the rows: the column sums of a matrix of partial sums. Its order
// depends on the shape alone.
#pragma once

#include "kernels/tiling.h"
#include "kernels/vector.cuh"

namespace fusedops {
namespace column_sum_detail {

constexpr int kColumns = 32;  // of a block
constexpr int kRows = 8;

// The sum of each column of the [rows, cols] partial sums, and of the `tail` values after them, the
// first of which belongs to column `tail_column`.
template <class T>
__global__ void __launch_bounds__(kColumns* kRows)
    column_sum_kernel(T* __restrict__ out, const Accumulator<T>* __restrict__ partial,
                      std::int64_t rows, std::int64_t cols, int tail, std::int64_t tail_column) {
  using A = Accumulator<T>;
  __shared__ A shared[kRows][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  A sum = 0;
  if (column < cols) {
#pragma unroll 4
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

// Rows that lie as whole vectors along a period (tiling.h) are partial sums of `cols` columns each;
// `tail` more values, from `tail_column` on, follow them.
template <class T>
gpu::Status column_sum(T* out, const Accumulator<T>* partial, std::int64_t rows, std::int64_t cols,
                       int tail, std::int64_t tail_column, gpu::Stream stream) {
  using namespace column_sum_detail;
  return gpu::launch(&column_sum_kernel<T>, ceil_div(cols, kColumns), dim3(kColumns, kRows), stream,
                     out, partial, rows, cols, tail, tail_column);
}

}  // namespace fusedops
