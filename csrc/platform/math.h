// Scalar functions that CUDA and HIP spell differently.
#pragma once

#include "platform/gpu.h"

#define FUSEDOPS_DEVICE __device__ __forceinline__

namespace fusedops::math {

// 2^x by the hardware's function: relative error near 2^-22, results under 2^-126 may become 0.
FUSEDOPS_DEVICE float exp2_fast(float x) {
#if defined(FUSEDOPS_MODEL)
  return model::flushed(exp2f(model::flushed(x)));
#elif defined(__HIP_PLATFORM_AMD__)
  return __builtin_amdgcn_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// 1/x by the hardware's function: within 1 ulp, results under 2^-126 may become 0.
FUSEDOPS_DEVICE float reciprocal_fast(float x) {
#if defined(FUSEDOPS_MODEL)
  return model::flushed(1.0f / model::flushed(x));
#elif defined(__HIP_PLATFORM_AMD__)
  return __builtin_amdgcn_rcpf(x);
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// max(x, bound). NaN stays NaN.
FUSEDOPS_DEVICE float max_keeping_nan(float x, float bound) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(FUSEDOPS_MODEL)
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
#else
  return x < bound ? bound : x;
#endif
}

// 1/sqrt(x), within 2 ulp.
FUSEDOPS_DEVICE float inverse_sqrt(float x) { return rsqrtf(x); }
FUSEDOPS_DEVICE double inverse_sqrt(double x) { return rsqrt(x); }

FUSEDOPS_DEVICE unsigned to_bits(float x) { return __float_as_uint(x); }
FUSEDOPS_DEVICE float from_bits(unsigned x) { return __uint_as_float(x); }

// 0, but the compiler knows neither that nor the value before `after` is known. A value xored with
// it is a new value to the compiler, so it keeps nothing that it derived from the old one. Blocks
// must have a depth of 1.
FUSEDOPS_DEVICE unsigned unknown_zero(float after) { return to_bits(after) * threadIdx.z; }

// Whether larger_pair() is an instruction.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(FUSEDOPS_MODEL)
constexpr bool kHasPairs = true;
#else
constexpr bool kHasPairs = false;
#endif

// The larger ones of two pairs of 16-bit numbers, float16 or bfloat16; of a NaN and a number the
// number.
template <bool kHalf>
FUSEDOPS_DEVICE unsigned larger_pair([[maybe_unused]] unsigned a, [[maybe_unused]] unsigned b) {
  unsigned out = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(FUSEDOPS_MODEL)
  if constexpr (kHalf) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  } else {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  }
#endif
  return out;
}

// 16 bits of ones for each byte that is 1, for two of the four bytes of a word: the first two if
// `pair` is 0, else the last two. Each byte is 0 or 1.
FUSEDOPS_DEVICE unsigned spread_bools(unsigned four, int pair) {
#if defined(__HIP_PLATFORM_AMD__) || defined(FUSEDOPS_MODEL)
  const unsigned two = four >> 16 * pair;
  return ((two & 1u) | (two << 8 & 0x10000u)) * 0xffffu;
#else
  unsigned out;  // repeats the top bit of two bytes, each over two bytes
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(four << 7), "r"(pair == 0 ? 0x9988 : 0xbbaa));
  return out;
#endif
}

// P(Z <= x) of a standard normal variable, accurate in the lower tail too.
FUSEDOPS_DEVICE double normal_cdf(double x) { return normcdf(x); }

}  // namespace fusedops::math
