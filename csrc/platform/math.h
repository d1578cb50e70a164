// Scalar functions that CUDA and HIP spell differently.
#pragma once

#include "platform/gpu.h"

#define FUSEDOPS_DEVICE __device__ __forceinline__

namespace fusedops::math {

// 2^x by the hardware's function: relative error near 2^-22, results under 2^-126 may become 0.
FUSEDOPS_DEVICE float exp2_fast(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return __builtin_amdgcn_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// 1/x by the hardware's function: within 1 ulp, results under 2^-126 may become 0.
FUSEDOPS_DEVICE float reciprocal_fast(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return __builtin_amdgcn_rcpf(x);
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// max(x, bound), where a NaN stays a NaN.
FUSEDOPS_DEVICE float max_keeping_nan(float x, float bound) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
#else
  return x < bound ? bound : x;
#endif
}

FUSEDOPS_DEVICE unsigned to_bits(float x) { return __float_as_uint(x); }
FUSEDOPS_DEVICE float from_bits(unsigned x) { return __uint_as_float(x); }

// P(Z <= x) of a standard normal variable, accurate in the lower tail too.
FUSEDOPS_DEVICE double normal_cdf(double x) { return normcdf(x); }

}  // namespace fusedops::math
