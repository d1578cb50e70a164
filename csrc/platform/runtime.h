// What the host side knows of a GPU's runtime, the same for CUDA and HIP. It includes no header of
// theirs: a kernel library knows its runtime, its callers need not.
#pragma once

#include <torchwheel/kernels.h>  // TORCHWHEEL_EXPORT

namespace fusedops::gpu {

using Stream = void*;  // cudaStream_t or hipStream_t
using Status = int;    // cudaError_t or hipError_t
constexpr Status kSuccess = 0;

}  // namespace fusedops::gpu
