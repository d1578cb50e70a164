// A block for kernels in which the threads along x share a row.
#pragma once

#include "kernels/tiling.h"
#include "platform/warp.h"

namespace fusedops {

struct RowBlock {
  std::int64_t threads;  // of a row: a power of two up to a warp's width, or whole warps
  std::int64_t rows;

  std::int64_t blocks(std::int64_t of_rows) const { return ceil_div(of_rows, rows); }
  dim3 dim() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows)); }
};

// For rows that need `threads` threads, as many of them in a block as `most` threads are for. Rows
// wider than a warp have a block each.
inline RowBlock row_block(std::int64_t threads, std::int64_t most) {
  std::int64_t width = 1;
  while (width < threads && width < warp::kWidth) width *= 2;
  if (threads > width) width = ceil_div(threads, warp::kWidth) * warp::kWidth;
  return {width, width > warp::kWidth ? 1 : std::max<std::int64_t>(most / width, 1)};
}

}  // namespace fusedops
