#include "kernels/runtime.h"

#include <cstddef>
#include <cstring>

#include "platform/status.h"

namespace fusedops::kernels {

const char* describe(gpu::Status status) { return gpu::describe(status); }

gpu::Status make_current(int gpu, int& before) {
#if defined(FUSEDOPS_MODEL)
  before = gpu;
  return gpu::kSuccess;
#elif defined(__HIP_PLATFORM_AMD__)
  const gpu::Status status = hipGetDevice(&before);
  return status == gpu::kSuccess && before != gpu ? hipSetDevice(gpu) : status;
#else
  const gpu::Status status = cudaGetDevice(&before);
  return status == gpu::kSuccess && before != gpu ? cudaSetDevice(gpu) : status;
#endif
}

gpu::Status is_capturing(gpu::Stream stream, bool& capturing) {
#if defined(FUSEDOPS_MODEL)
  capturing = false;
  return static_cast<void>(stream), gpu::kSuccess;
#else
  const auto native = static_cast<gpu::NativeStream>(stream);
#if defined(__HIP_PLATFORM_AMD__)
  hipStreamCaptureStatus found = hipStreamCaptureStatusNone;
  const gpu::Status status = hipStreamIsCapturing(native, &found);
  capturing = found != hipStreamCaptureStatusNone;
#else
  cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
  const gpu::Status status = cudaStreamIsCapturing(native, &found);
  capturing = found != cudaStreamCaptureStatusNone;
#endif
  return status;
#endif
}

gpu::Status fill_with_nan(void* data, std::int64_t bytes, gpu::Stream stream) {
  const auto count = static_cast<std::size_t>(bytes);
#if defined(FUSEDOPS_MODEL)
  return static_cast<void>(stream), std::memset(data, 0xff, count), gpu::kSuccess;
#else
  const auto native = static_cast<gpu::NativeStream>(stream);
#if defined(__HIP_PLATFORM_AMD__)
  return hipMemsetAsync(data, 0xff, count, native);
#else
  return cudaMemsetAsync(data, 0xff, count, native);
#endif
#endif
}

gpu::Status read(void* host, const void* device, std::int64_t bytes, gpu::Stream stream) {
  const auto count = static_cast<std::size_t>(bytes);
#if defined(FUSEDOPS_MODEL)
  return static_cast<void>(stream), std::memcpy(host, device, count), gpu::kSuccess;
#else
  const auto native = static_cast<gpu::NativeStream>(stream);
#if defined(__HIP_PLATFORM_AMD__)
  const gpu::Status status = hipMemcpyAsync(host, device, count, hipMemcpyDeviceToHost, native);
  return status == gpu::kSuccess ? hipStreamSynchronize(native) : status;
#else
  const gpu::Status status = cudaMemcpyAsync(host, device, count, cudaMemcpyDeviceToHost, native);
  return status == gpu::kSuccess ? cudaStreamSynchronize(native) : status;
#endif
#endif
}

TORCHWHEEL_EXPORT(describe)
TORCHWHEEL_EXPORT(make_current)
TORCHWHEEL_EXPORT(is_capturing)
TORCHWHEEL_EXPORT(fill_with_nan)
TORCHWHEEL_EXPORT(read)

}  // namespace fusedops::kernels
