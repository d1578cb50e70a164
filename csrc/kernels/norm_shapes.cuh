// How the norm kernels are laid out, by the length of the row alone: a row's bits do not depend on
// how many rows there are.
#pragma once

#include <type_traits>

#include "kernels/norm_form.cuh"
#include "platform/device.h"

namespace fusedops::kernels::norm_detail {

// The shapes of a form, each for longer rows than the one before. Few vectors a thread and many
// threads are soonest done; but memory wants 64 KB asked for by each multiprocessor, and 64
// registers a thread are 1024 threads of it, so longer rows have 4 vectors a thread, or the two
// inputs of a sum 2 each. Measured on an H200.
template <class F>
struct Shapes {
  static constexpr bool kHalf = sizeof(typename F::T) == 2;
  static constexpr bool kSums = F::kAdds != Adds::nothing;
  static constexpr bool kHeavy = kHalf && F::kCentered;  // much arithmetic for the bytes
  template <bool kCondition, class A, class B>
  using If = std::conditional_t<kCondition, A, B>;

  using Tiny = Shape<2, warp::kWidth, 1, 2>;
  using Small = If<kSums, If<kHalf, Shape<2, 1024, 1, 2>, Shape<1, 1024, 1, 1>>,
                   If<kHeavy, Shape<4, 128, 6, 4>, Shape<2, 256, 4, 2>>>;
  using Middle =
      If<kSums, If<kHalf, Small, Shape<2, 1024, 1, 1>>, Shape<4, 512, 2, kHeavy ? 1 : 4>>;
  using Large = If<kSums, Shape<4, 1024, 1, 1>, Shape<8, 1024, 1, 1, false, kHalf>>;
  using Longest = If<kSums, Shape<4, 1024, 1, 1, true>, Shape<8, 512, 2, 1, true, kHalf>>;
  using Shifted = If<kSums, Shape<2, 1024, 1, 0>, Shape<4, 1024, 1, 1>>;
};

// Blocks of a row of so many vectors: a power of two.
template <class S>
std::int64_t blocks_of_row(std::int64_t vectors) {
  constexpr std::int64_t kBlock = std::int64_t{S::kVectors} * S::kMost;
  std::int64_t blocks = 1;
  while (blocks * kBlock < vectors) blocks *= 2;
  return blocks;
}

// Whether the threads of a row of shape S hold so many vectors.
template <class S>
bool fits(std::int64_t vectors) {
  constexpr std::int64_t kMostBlocks = 8;
  const std::int64_t blocks = blocks_of_row<S>(vectors);
  return blocks == 1 || (S::kClusters && blocks <= kMostBlocks && gpu::has_clusters());
}

}  // namespace fusedops::kernels::norm_detail
