// A grid over rows of whole vectors, for kernels that count them in 32 bits.
#pragma once

#include "kernels/tiling.h"
#include "platform/gpu.h"

namespace fusedops {

__host__ __device__ constexpr bool is_narrow(std::int64_t size) {
  return size < (std::int64_t{1} << 31);
}

// Threads of a block where `threads` are wanted in all: fewer where there would be fewer blocks
// than four for each multiprocessor of a large GPU.
inline int block_threads(std::int64_t threads) {
  constexpr int kBlocks = 512;
  int block = kThreads;
  while (block > gpu::kWarpSize && threads < block * kBlocks) block /= 2;
  return block;
}

// Threads lie along x in a row and along y down the rows. Blocks do too; where y's limit is too
// little for the rows, z goes on: the row of a thread is
//   (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y.
struct RowGrid {
  dim3 blocks, threads;
};

// For rows of `period` vectors, of which a thread takes `across`, a block's width apart.
inline RowGrid row_grid(std::int64_t rows, std::int64_t period, int across) {
  constexpr std::int64_t kMostY = 65535;
  const std::int64_t needed = ceil_div(period, across);
  const int threads = block_threads(rows * needed);
  const std::int64_t width = tile_width(needed, threads, gpu::kWarpSize);
  const std::int64_t height = threads / width;
  const std::int64_t groups = ceil_div(rows, height), down = std::min(groups, kMostY);
  return {dim3(static_cast<unsigned>(ceil_div(period, width * across)), static_cast<unsigned>(down),
               static_cast<unsigned>(ceil_div(groups, down))),
          dim3(static_cast<unsigned>(width), static_cast<unsigned>(height))};
}

}  // namespace fusedops
