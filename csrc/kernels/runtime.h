// The few functions of the GPU's runtime that the host side needs.
#pragma once

#include <cstdint>

#include "platform/runtime.h"

namespace fusedops::kernels {

// The runtime's text for a status.
const char* describe(gpu::Status status);

// Makes a GPU the calling thread's current one. `before` is set to the one that was.
gpu::Status make_current(int number, int& before);

// Sets `bytes` bytes of device memory to 0.
gpu::Status fill_with_zeros(void* data, std::int64_t bytes, gpu::Stream stream);

}  // namespace fusedops::kernels
