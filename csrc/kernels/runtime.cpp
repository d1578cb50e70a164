#include "kernels/runtime.h"

#include "platform/device.h"
#include "platform/stream.h"

namespace fusedops::kernels {

const char* describe(gpu::Status status) { return gpu::describe(status); }

gpu::Status make_current(int number, int& before) { return gpu::make_current(number, before); }

gpu::Status is_capturing(gpu::Stream stream, bool& capturing) {
  return gpu::is_capturing(stream, capturing);
}

gpu::Status fill_with_nan(void* data, std::int64_t bytes, gpu::Stream stream) {
  return gpu::fill_bytes(data, 0xff, bytes, stream);
}

gpu::Status read(void* host, const void* device, std::int64_t bytes, gpu::Stream stream) {
  return gpu::read(host, device, bytes, stream);
}

TORCHWHEEL_EXPORT(describe)
TORCHWHEEL_EXPORT(make_current)
TORCHWHEEL_EXPORT(is_capturing)
TORCHWHEEL_EXPORT(fill_with_nan)
TORCHWHEEL_EXPORT(read)

}  // namespace fusedops::kernels
