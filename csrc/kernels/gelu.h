// GELU, Gaussian error linear units (Hendrycks & Gimpel 2016), and its derivative.
//
// Tanh form: y = 0.5 v (1 + tanh u) = v / (1 + 2^q), u = sqrt(2/pi) (v + 0.044715 v^3),
// q = -2 u log2(e). Written with the quotient it has no cancellation for negative v, and -inf gives
// the limit, -0, where the product form gives NaN.
#pragma once

#include <cmath>

#include "platform/math.h"

namespace fusedops::gelu {

constexpr float kLinear = -2.3022082f;               // q = v (kLinear + kCubic v^2)
constexpr float kCubic = -0.10294324f;               // = 0.044715 kLinear
constexpr double kSlope = 1.5957691216057307;        // 2 sqrt(2/pi)
constexpr double kSlopeCubic = 0.21406444881780074;  // 3 * 0.044715 kSlope
constexpr double kInvSqrt2Pi = 0.3989422804014327;

// For 16-bit results: two hardware functions, relative error near 1e-5. At the bound 2^q is inf
// already, so the result is -0 there and below.
FUSEDOPS_DEVICE float tanh_form_fast(float x) {
  const float v = math::max_keeping_nan(x, -12.0f);
  const float q = v * fmaf(kCubic, v * v, kLinear);
  return v * math::reciprocal_fast(1.0f + math::exp2_fast(q));
}

// For float32 results: within 2 ulp of the exact value down to the subnormals. q reaches 155, where
// an error of half an ulp in it would cost 5 ulp of 2^q, so q's rounding errors are carried along:
// kLinear and kCubic are held in two parts, and the difference of p and its leading part is exact
// because kLinearHigh has few bits.
FUSEDOPS_DEVICE float tanh_form(float x) {
  constexpr float kLinearHigh = -2.30220794677734375f, kLinearLow = -2.5136697e-07f;
  constexpr float kCubicLow = 2.0161985e-09f;
  constexpr float kLowest = -10.85f;             // under it y rounds to -0
  constexpr float kLinearFrom = 5.5f;            // over it y rounds to x
  constexpr float kRound = 12582912.0f - 30.0f;  // adding it rounds to an integer n, stored as n-30
  const float v = x < kLowest ? kLowest : x;     // a NaN stays
  const float square = v * v;
  const float square_low = fmaf(v, v, -square);
  const float p = fmaf(kCubic, square, kLinearHigh);
  const float p_low = fmaf(kCubic, square, kLinearHigh - p) +
                      fmaf(kCubic, square_low, fmaf(kCubicLow, square, kLinearLow));
  // q = n + f with |f| <= 1/2, then 2^f by a polynomial (relative error 2^-26.7).
  const float shifted = fmaf(v, p, kRound);
  const float f = fmaf(v, p_low, fmaf(v, p, -(shifted - kRound)));
  float e = 1.54531634e-04f;
  e = fmaf(e, f, 1.33908633e-03f);
  e = fmaf(e, f, 9.61808302e-03f);
  e = fmaf(e, f, 5.55035695e-02f);
  e = fmaf(e, f, 2.40226507e-01f);
  e = fmaf(e, f, 6.93147182e-01f);
  e = fmaf(e, f, 1.0f);
  // Everything is scaled by 2^-30, so that no step leaves the normal numbers.
  const float scaled = math::from_bits(math::to_bits(e) + (math::to_bits(shifted) << 23));
  const float denominator = scaled + 0x1p-30f;
  const float inverse = math::reciprocal_fast(denominator);
  const float guess = v * inverse;
  const float y = fmaf(fmaf(-denominator, guess, v), inverse, guess) * 0x1p-30f;
  return x > kLinearFrom ? x : y;
}

FUSEDOPS_DEVICE double tanh_form(double v) {
  const double y = v / (1.0 + exp(-v * (kSlope + kSlopeCubic / 3.0 * v * v)));
  return v < -40.0 ? -0.0 : y;
}

// The lower tail of the standard normal distribution at -|v|, and exp(-v^2 / 2). The tail is the
// second times a polynomial in 1 / (1 + 0.3 |v|), fitted for |v| <= 14: relative error 8.4e-8. The
// rounding errors of the exponent are carried along, so it holds in the far tail too.
struct NormalTail {
  float tail;
  float bell;
};

FUSEDOPS_DEVICE NormalTail normal_tail(float v) {
  constexpr float kHalfLog2e = -0.72134752f, kHalfLog2eLow = -9.6258e-09f;
  constexpr float kLn2 = 0.69314718f;
  const float a = fminf(fabsf(v), 40.0f);
  const float square = a * a;
  const float q = kHalfLog2e * square;
  const float q_low =
      fmaf(kHalfLog2e, square, -q) + fmaf(kHalfLog2e, fmaf(a, a, -square), kHalfLog2eLow * square);
  const float power = math::exp2_fast(q);
  const float bell = fmaf(power, kLn2 * q_low, power);
  const float t = math::reciprocal_fast(fmaf(0.3f, a, 1.0f));
  float p = 0.038379066f;
  p = fmaf(p, t, -0.16916968f);
  p = fmaf(p, t, 0.22866702f);
  p = fmaf(p, t, -0.07651392f);
  p = fmaf(p, t, 0.14254029f);
  p = fmaf(p, t, 0.09468166f);
  p = fmaf(p, t, 0.12192078f);
  p = fmaf(p, t, 0.119487636f);
  p = fmaf(p, t, 7.1716845e-06f);
  return {bell * p, bell};
}

// Erf form: y = 0.5 v (1 + erf(v / sqrt 2)), v times the normal distribution's cumulative function.
FUSEDOPS_DEVICE float erf_form(float v) {
  const float tail = normal_tail(v).tail;
  const float y = v * (v < 0.0f ? tail : 1.0f - tail);
  return v < -40.0f ? -0.0f : y;
}

FUSEDOPS_DEVICE double erf_form(double v) { return v < -40.0 ? -0.0 : v * math::normal_cdf(v); }

// Outside the bounds the derivatives are 0 or 1 in every type; a NaN stays.
template <class A>
FUSEDOPS_DEVICE A clamp(A v, A bound) {
  return v < -bound ? -bound : (v > bound ? bound : v);
}

// dy/dv of the tanh form from e = 2^q and s = 1 / (1 + e). 1 - s is taken as e s: the difference
// would lose its digits where s is near 1.
template <class A>
FUSEDOPS_DEVICE A tanh_form_slope(A v, A e, A s) {
  return s + v * s * (e * s) * (A(kSlope) + A(kSlopeCubic) * v * v);
}

// e must stay finite: 2^q reaches 2^126 at -10, and e^q' the limit of a double past -20.
FUSEDOPS_DEVICE float tanh_form_slope(float x) {
  const float v = clamp(x, 10.0f);
  const float e = math::exp2_fast(v * fmaf(kCubic, v * v, kLinear));
  return tanh_form_slope(v, e, math::reciprocal_fast(1.0f + e));
}

FUSEDOPS_DEVICE double tanh_form_slope(double x) {
  const double v = clamp(x, 20.0);
  const double e = exp(-v * (kSlope + kSlopeCubic / 3.0 * v * v));
  return tanh_form_slope(v, e, 1.0 / (1.0 + e));
}

FUSEDOPS_DEVICE float erf_form_slope(float x) {
  const float v = clamp(x, 40.0f);
  const NormalTail at = normal_tail(v);
  return (v < 0.0f ? at.tail : 1.0f - at.tail) + v * float(kInvSqrt2Pi) * at.bell;
}

FUSEDOPS_DEVICE double erf_form_slope(double x) {
  const double v = clamp(x, 40.0);
  return math::normal_cdf(v) + v * kInvSqrt2Pi * exp(-0.5 * v * v);
}

}  // namespace fusedops::gelu
