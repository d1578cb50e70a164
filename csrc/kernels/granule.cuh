// A few bytes moved at once.
#pragma once

#include <type_traits>

#include "kernels/types.h"

namespace fusedops {

template <int kBytes>
struct alignas(kBytes) Granule {
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  using Part = std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>;
  Part part[kBytes / sizeof(Part)];
};

}  // namespace fusedops
