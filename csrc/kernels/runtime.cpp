#include "kernels/runtime.h"

#include "platform/device.h"
#include "platform/stream.h"

namespace fusedops::kernels {

const char* describe(gpu::Status status) { return gpu::describe(status); }

gpu::Status make_current(int number, int& before) { return gpu::make_current(number, before); }

gpu::Status fill_with_zeros(void* data, std::int64_t bytes, gpu::Stream stream) {
  return gpu::fill_with_zeros(data, bytes, stream);
}

TORCHWHEEL_EXPORT(describe)
TORCHWHEEL_EXPORT(make_current)
TORCHWHEEL_EXPORT(fill_with_zeros)

}  // namespace fusedops::kernels
