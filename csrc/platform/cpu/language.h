// The words of CUDA and HIP in device code, for an ordinary C++ compiler.
#pragma once

// The standard library first: it uses some of these words as attributes.
#include <math.h>  // puts exp of a float and the like into the global namespace

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "platform/cpu/machine.h"
#include "platform/cpu/types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// A block's static shared memory is what the library keeps for each thread of the CPU; machine.cpp
// exchanges it when it goes on with another block.
#define __shared__ static thread_local

#define threadIdx (::fusedops::model::thread_index())
#define blockIdx (::fusedops::model::block_index())
#define blockDim (::fusedops::model::block_dim())
#define gridDim (::fusedops::model::grid_dim())
#define __syncthreads ::fusedops::model::block_barrier

using std::max;
using std::min;

template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}

inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

// Picks four of the eight bytes of a and b, by the digits of `selector`. A digit of 8 or more
// repeats the sign of the byte.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> 4 * i & 15u;
    const auto byte = static_cast<unsigned>(bytes >> 8 * (digit & 7u) & 255u);
    out |= (digit & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
  }
  return out;
}

inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(double{x})); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline void sincospi(double x, double* sine, double* cosine) {
  constexpr double kPi = 3.14159265358979323846;
  const double rest = x - 2 * std::rint(x / 2);  // exact, in [-1, 1]
  *sine = std::sin(kPi * rest);
  *cosine = std::cos(kPi * rest);
}
inline void sincospi(float x, float* sine, float* cosine) {
  double wide_sine, wide_cosine;
  sincospi(double{x}, &wide_sine, &wide_cosine);
  *sine = static_cast<float>(wide_sine);
  *cosine = static_cast<float>(wide_cosine);
}
inline double normcdf(double x) { return 0.5 * std::erfc(x * -0.70710678118654752440); }
