// How the threads of a grid are laid over a contiguous [rows, cols] matrix.
#pragma once

#include <algorithm>

#include "kernels/types.h"

namespace fusedops {

// The matrix is one run of 16-byte vectors. `period` vectors apart, the columns repeat: that is one
// row when a row holds whole vectors, and as many rows as a vector has lanes when it does not. A
// thread that steps by whole periods therefore keeps its columns, so it fetches its bias once,
// whatever `cols` is.
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

// Threads across a run of `period`: all of it, or equal parts of it rounded to the width of a warp.
inline std::int64_t tile_width(std::int64_t period, int threads, int warp) {
  const std::int64_t tiles = ceil_div(period, threads);
  return tiles == 1 ? period : ceil_div(ceil_div(period, tiles), warp) * warp;
}

// Lays blocks of at most `threads` over the matrix.
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

// Each thread walks `steps` periods; as many blocks as that needs.
inline Tiling with_steps(Tiling t, int steps) {
  t.steps = steps;
  t.row_groups = static_cast<unsigned>(
      std::max<std::int64_t>(1, ceil_div(t.periods, static_cast<std::int64_t>(t.height) * steps)));
  return t;
}

}  // namespace fusedops
