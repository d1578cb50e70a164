// Division by a number that is known when a kernel is launched.
#pragma once

#include "kernels/types.h"
#include "platform/math.h"

namespace fusedops {

// A multiplication and a shift instead of a division (Granlund & Montgomery, "Division by invariant
// integers using multiplication", 1994). Of numbers under 2^31, by one from 1 to 2^31 - 1.
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
