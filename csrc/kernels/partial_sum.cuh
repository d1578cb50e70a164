// The first stage of sums over the rows: what one block adds up. column_sum.cuh is the second.
#pragma once

#include "kernels/tiling.h"
#include "kernels/vector.cuh"

namespace fusedops {

constexpr int kSumThreads =
    256;  // of a block: more rows are summed before a partial sum is written

// Few enough blocks that the partial sums are a small part of the traffic, enough to fill any GPU;
// the same on every GPU, so that the sum's bits are too.
inline Tiling sum_tiling(std::int64_t rows, std::int64_t cols, const void* bias, int lanes) {
  constexpr std::int64_t kBlocks = 1024;
  constexpr std::int64_t kLeastSteps = 8;
  const Tiling t = tile(rows, cols, bias, lanes, kSumThreads, gpu::kWarpSize);
  const std::int64_t groups = std::max<std::int64_t>(1, kBlocks / t.col_tiles);
  const std::int64_t steps = ceil_div(t.periods, groups * t.height);
  return with_steps(t, static_cast<int>(std::max(steps, kLeastSteps)));
}

// Adds the sums of the threads of a block that have the same columns, those of one threadIdx.x, and
// writes the first `count` of the totals to `partial`. `shared` has room for kSumThreads vectors;
// all threads of the block take part.
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

}  // namespace fusedops
