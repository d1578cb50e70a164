// The GPU runtime's status codes under one set of names. Host only.
#pragma once

#include "platform/runtime.h"

#if defined(FUSEDOPS_MODEL)
#include "platform/cpu/machine.h"
#elif defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#else
#include <cuda_runtime_api.h>
#endif

namespace fusedops::gpu {

#if defined(FUSEDOPS_MODEL)
using NativeStream = void*;
constexpr Status kInvalidValue = model::kInvalidValue;
inline const char* describe(Status status) { return model::describe(status); }
#elif defined(__HIP_PLATFORM_AMD__)
using NativeStream = hipStream_t;
constexpr Status kInvalidValue = hipErrorInvalidValue;
inline Status last_status() { return hipGetLastError(); }
inline const char* describe(Status status) {
  return hipGetErrorString(static_cast<hipError_t>(status));
}
#else
using NativeStream = cudaStream_t;
constexpr Status kInvalidValue = cudaErrorInvalidValue;
inline Status last_status() { return cudaGetLastError(); }
inline const char* describe(Status status) {
  return cudaGetErrorString(static_cast<cudaError_t>(status));
}
#endif

}  // namespace fusedops::gpu
