// How the threads of a grid are laid over a contiguous [rows, cols] matrix: by periods of columns
// (Tiling), by rows of 32-bit numbers (RowGrid), or with a row for a block's threads (RowBlock).
#pragma once

#include <algorithm>

#include "kernels/types.h"
#include "platform/gpu.h"
#include "platform/math.h"
#include "platform/warp.h"

namespace fusedops {

// The matrix is one run of 16-byte vectors. The columns repeat after `period` vectors: after one
// row if a row holds whole vectors, else after as many rows as a vector has lanes. So a thread that
// steps by whole periods keeps its columns, and loads its bias once.
struct Tiling {
  std::int64_t cols;
  std::int64_t period;   // vectors after which the columns repeat
  std::int64_t vectors;  // whole vectors in the matrix
  std::int64_t periods;  // rows of `period` vectors; the last may be partial
  int tail;              // elements after the last whole vector
  unsigned width;        // threads across a period
  unsigned height;       // threads down the periods
  unsigned col_tiles;    // blocks across a period
  unsigned row_groups;   // blocks down the periods
  int steps;             // periods each thread walks
  bool whole_rows;       // a row holds whole vectors
  bool vector_bias;      // the bias can be fetched as whole vectors

  std::int64_t blocks() const { return std::int64_t{col_tiles} * row_groups; }
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Threads across `period` vectors: one each, or equal parts that are multiples of a warp's width.
inline std::int64_t tile_width(std::int64_t period, int threads, int warp) {
  const std::int64_t tiles = ceil_div(period, threads);
  return tiles == 1 ? period : ceil_div(ceil_div(period, tiles), warp) * warp;
}

// Lays blocks of at most `threads` threads over the matrix.
inline Tiling tile(std::int64_t rows, std::int64_t cols, const void* bias, int lanes, int threads,
                   int warp) {
  Tiling t{};
  const std::int64_t elements = rows * cols;
  t.cols = cols;
  t.whole_rows = cols % lanes == 0;
  t.vector_bias = t.whole_rows && aligned(bias);
  t.period = t.whole_rows ? cols / lanes : cols;
  t.vectors = elements / lanes;
  t.tail = static_cast<int>(elements % lanes);
  t.periods = ceil_div(t.vectors, t.period);
  const std::int64_t width = tile_width(t.period, threads, warp);
  t.width = static_cast<unsigned>(width);
  t.height = static_cast<unsigned>(threads / width);
  t.col_tiles = static_cast<unsigned>(ceil_div(t.period, width));
  t.row_groups = 1;
  t.steps = 1;
  return t;
}

// Lets each thread walk `steps` periods, in as many blocks as that needs.
inline Tiling with_steps(Tiling t, int steps) {
  t.steps = steps;
  t.row_groups = static_cast<unsigned>(
      std::max<std::int64_t>(1, ceil_div(t.periods, static_cast<std::int64_t>(t.height) * steps)));
  return t;
}

struct RowBlock {
  std::int64_t threads;  // threads of a row: a power of two up to a warp's width, or whole warps
  std::int64_t rows;

  std::int64_t blocks(std::int64_t of_rows) const { return ceil_div(of_rows, rows); }
  dim3 dim() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows)); }
};

// A block for rows that need `threads` threads, with as many rows as fit into `most` threads. A row
// wider than a warp has a block of its own.
inline RowBlock row_block(std::int64_t threads, std::int64_t most) {
  std::int64_t width = 1;
  while (width < threads && width < warp::kWidth) width *= 2;
  if (threads > width) width = ceil_div(threads, warp::kWidth) * warp::kWidth;
  return {width, width > warp::kWidth ? 1 : std::max<std::int64_t>(most / width, 1)};
}

__host__ __device__ constexpr bool is_narrow(std::int64_t size) {
  return size < (std::int64_t{1} << 31);
}

// Threads of a block if `threads` are needed in all: fewer if a large GPU had less than four blocks
// a multiprocessor otherwise.
inline int block_threads(std::int64_t threads) {
  constexpr int kBlocks = 512;
  int block = kThreads;
  while (block > gpu::kWarpSize && threads < block * kBlocks) block /= 2;
  return block;
}

// A grid over rows of whole vectors, for kernels that count in 32 bits. Threads lie along x in a
// row and along y down the rows, and so do blocks. If y's limit is too small for the rows, z
// continues. The row of a thread is
//   (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y.
struct RowGrid {
  dim3 blocks, threads;
};

// A grid for rows of `period` vectors. A thread takes `across` vectors, a block's width apart.
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

// Division by a number known at launch: a multiplication and a shift (Granlund & Montgomery,
// "Division by invariant integers using multiplication", 1994). It divides numbers under 2^31, by 1
// to 2^31 - 1.
struct Divisor {
  unsigned by, factor, shift;

  explicit Divisor(std::int64_t number) : by(static_cast<unsigned>(number)), shift(0) {
    while ((std::uint64_t{1} << shift) < by) ++shift;
    const std::uint64_t power = std::uint64_t{1} << shift;
    factor = static_cast<unsigned>(((power - by) << 32) / by + 1);
  }

  FUSEDOPS_DEVICE unsigned quotient(unsigned number) const {
    return (__umulhi(number, factor) + number) >> shift;
  }
};

}  // namespace fusedops
