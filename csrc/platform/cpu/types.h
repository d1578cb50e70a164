// CUDA's and HIP's types for the CPU model: vectors, and 16-bit floating point numbers that are
// rounded to nearest, ties to even, as the hardware does.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline float2 make_float2(float x, float y) { return {x, y}; }

struct __half {
  std::uint16_t bits;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using half2 = __half2;

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline float __half2float(__half value) {
  const unsigned sign = (value.bits & 0x8000u) << 16, exponent = value.bits >> 10 & 31u;
  const unsigned fraction = value.bits & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

inline __half __float2half_rn(float value) {
  const unsigned bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return {0x7fff};
  unsigned out;
  if (magnitude >= 0x477ff000u) {  // 65520: rounds to infinity
    out = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // under 2^-14: the float sum rounds at 2^-24
    out = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    out = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | out)};
}

inline float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

inline __nv_bfloat16 __float2bfloat16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline __half2 __float22half2_rn(float2 value) {
  return {__float2half_rn(value.x), __float2half_rn(value.y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) {
  return {__float2bfloat16(value.x), __float2bfloat16(value.y)};
}
inline __half2 __float2half2_rn(float value) {
  return {__float2half_rn(value), __float2half_rn(value)};
}

// The difference of two 16-bit numbers is exact in float, so rounding it once is right.
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) - __half2float(b.x)),
          __float2half_rn(__half2float(a.y) - __half2float(b.y))};
}
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {__float2bfloat16(__bfloat162float(a.x) - __bfloat162float(b.x)),
          __float2bfloat16(__bfloat162float(a.y) - __bfloat162float(b.y))};
}
