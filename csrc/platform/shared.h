// Addresses in shared memory as instructions take them that name it.
#pragma once

#include "platform/math.h"

namespace fusedops::shared {

#if defined(__HIP_PLATFORM_AMD__)
using Address = char*;
FUSEDOPS_DEVICE Address address_of(void* data) { return static_cast<char*>(data); }
#else
using Address = unsigned;
FUSEDOPS_DEVICE Address address_of(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}
#endif

// Stores 16 bytes.
FUSEDOPS_DEVICE void store_16(Address to, const uint4& bits) {
#if defined(__HIP_PLATFORM_AMD__)
  *reinterpret_cast<uint4*>(to) = bits;
#else
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
#endif
}

}  // namespace fusedops::shared
