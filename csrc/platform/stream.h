// Memory and capture on a stream. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "platform/status.h"

namespace fusedops::gpu {

#if defined(FUSEDOPS_MODEL)

// Whether the stream's work is being captured into a graph, so that nothing may be waited for.
inline Status is_capturing(Stream, bool& capturing) {
  capturing = false;
  return kSuccess;
}
// Sets each of the `bytes` bytes of device memory to `byte`.
inline Status fill_bytes(void* data, int byte, std::int64_t bytes, Stream) {
  std::memset(data, byte, static_cast<std::size_t>(bytes));
  return kSuccess;
}
// Copies device memory to the host and waits for it.
inline Status read(void* host, const void* device, std::int64_t bytes, Stream) {
  std::memcpy(host, device, static_cast<std::size_t>(bytes));
  return kSuccess;
}

#elif defined(__HIP_PLATFORM_AMD__)

inline Status is_capturing(Stream stream, bool& capturing) {
  hipStreamCaptureStatus found = hipStreamCaptureStatusNone;
  const Status status = hipStreamIsCapturing(static_cast<NativeStream>(stream), &found);
  capturing = found != hipStreamCaptureStatusNone;
  return status;
}
inline Status fill_bytes(void* data, int byte, std::int64_t bytes, Stream stream) {
  return hipMemsetAsync(data, byte, static_cast<std::size_t>(bytes),
                        static_cast<NativeStream>(stream));
}
inline Status read(void* host, const void* device, std::int64_t bytes, Stream stream) {
  const auto native = static_cast<NativeStream>(stream);
  const Status status =
      hipMemcpyAsync(host, device, static_cast<std::size_t>(bytes), hipMemcpyDeviceToHost, native);
  return status == kSuccess ? hipStreamSynchronize(native) : status;
}

#else

inline Status is_capturing(Stream stream, bool& capturing) {
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const Status status = cudaStreamIsCapturing(static_cast<NativeStream>(stream), &found);
  capturing = found != cudaStreamCaptureStatusNone;
  return status;
}
inline Status fill_bytes(void* data, int byte, std::int64_t bytes, Stream stream) {
  return cudaMemsetAsync(data, byte, static_cast<std::size_t>(bytes),
                         static_cast<NativeStream>(stream));
}
inline Status read(void* host, const void* device, std::int64_t bytes, Stream stream) {
  const auto native = static_cast<NativeStream>(stream);
  const Status status = cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes),
                                        cudaMemcpyDeviceToHost, native);
  return status == kSuccess ? cudaStreamSynchronize(native) : status;
}

#endif

}  // namespace fusedops::gpu
