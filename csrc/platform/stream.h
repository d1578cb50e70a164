// Memory on a stream. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "platform/status.h"

namespace fusedops::gpu {

// Sets `bytes` bytes of device memory to 0.
inline Status fill_with_zeros(void* data, std::int64_t bytes, [[maybe_unused]] Stream stream) {
  const auto count = static_cast<std::size_t>(bytes);
#if defined(FUSEDOPS_MODEL)
  std::memset(data, 0, count);
  return kSuccess;
#elif defined(__HIP_PLATFORM_AMD__)
  return hipMemsetAsync(data, 0, count, static_cast<NativeStream>(stream));
#else
  return cudaMemsetAsync(data, 0, count, static_cast<NativeStream>(stream));
#endif
}

}  // namespace fusedops::gpu
