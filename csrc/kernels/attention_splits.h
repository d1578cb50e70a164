// Over how many blocks the cache of one sequence's head is split.
#pragma once

#include <algorithm>

#include "kernels/types.h"

namespace fusedops::attention {

constexpr int kMostSplits = 32;  // a thread of a warp looks after each

// `pairs` heads of sequences on a GPU that holds `slots` blocks at a time; at most `most` blocks
// can leave partial results. Where the heads fill the GPU a split gains only evenness: with a last
// round of few blocks, a third of the GPU would have to do for memory.
inline int splits_of(std::int64_t pairs, std::int64_t slots, std::int64_t most) {
  const std::int64_t limit = std::min<std::int64_t>(kMostSplits, most / pairs);
  if (limit <= 1) return 1;
  if (pairs <= slots) return static_cast<int>(std::min(slots / pairs, limit));
  for (std::int64_t splits = 1; splits <= std::min<std::int64_t>(limit, 4); ++splits) {
    const double rounds = static_cast<double>(pairs * splits) / static_cast<double>(slots);
    const double whole = static_cast<double>(pairs * splits / slots);
    const double rest = rounds - whole;
    if (rounds >= 0.93 * (whole + (rest > 0 ? std::max(rest, 0.4) : 0))) {
      return static_cast<int>(splits);
    }
  }
  return 1;
}

}  // namespace fusedops::attention
