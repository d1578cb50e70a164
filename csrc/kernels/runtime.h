// The few functions of the GPU's runtime that the host side needs.
#pragma once

#include <cstdint>

#include "platform/runtime.h"

namespace fusedops::kernels {

// The runtime's text for a status.
const char* describe(gpu::Status status);

// Makes a GPU the calling thread's current one. `before` is set to the one that was.
gpu::Status make_current(int number, int& before);

// Whether the stream's work is being captured into a graph, so that nothing may be waited for.
gpu::Status is_capturing(gpu::Stream stream, bool& capturing);

// Sets `bytes` bytes of device memory to 0xff: NaN in every floating-point type.
gpu::Status fill_with_nan(void* data, std::int64_t bytes, gpu::Stream stream);

// Copies device memory to the host and waits for it.
gpu::Status read(void* host, const void* device, std::int64_t bytes, gpu::Stream stream);

}  // namespace fusedops::kernels
