// The GPU runtime under one set of names. Host only: a plain C++ compiler can compile it.
#pragma once

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#else
#include <cuda_runtime_api.h>
#endif

namespace fusedops::gpu {

#if defined(__HIP_PLATFORM_AMD__)
using Stream = hipStream_t;
using Status = hipError_t;
constexpr Status kSuccess = hipSuccess;
constexpr Status kInvalidValue = hipErrorInvalidValue;
inline Status last_status() { return hipGetLastError(); }
inline const char* describe(Status status) { return hipGetErrorString(status); }
#else
using Stream = cudaStream_t;
using Status = cudaError_t;
constexpr Status kSuccess = cudaSuccess;
constexpr Status kInvalidValue = cudaErrorInvalidValue;
inline Status last_status() { return cudaGetLastError(); }
inline const char* describe(Status status) { return cudaGetErrorString(status); }
#endif

}  // namespace fusedops::gpu
