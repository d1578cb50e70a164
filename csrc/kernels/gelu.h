// GELU, Gaussian error linear units (Hendrycks & Gimpel 2016), and its derivative.
//
// Tanh form: y = 0.5 v (1 + tanh u) = v / (1 + 2^q), u = sqrt(2/pi) (v + 0.044715 v^3), q = -2 u
// log2(e). The quotient has no cancellation for negative v. -inf gives the limit, -0, where the
// product gives NaN.
#pragma once

#include <cmath>

#include "kernels/logistic.h"

namespace fusedops::gelu {

constexpr float kLinear = -2.3022082f;               // q = v (kLinear + kCubic v^2)
constexpr float kCubic = -0.10294324f;               // = 0.044715 kLinear
constexpr double kSlope = 1.5957691216057307;        // 2 sqrt(2/pi)
constexpr double kSlopeCubic = 0.21406444881780074;  // 3 * 0.044715 kSlope
constexpr double kInvSqrt2Pi = 0.3989422804014327;

// For 16-bit results. At the bound 2^q is already inf, so the result is -0 there and below.
FUSEDOPS_DEVICE float tanh_form_fast(float x) {
  const float v = math::max_keeping_nan(x, -12.0f);
  return logistic::weigh_fast(v, v * fmaf(kCubic, v * v, kLinear));
}

// For float32 results: within 2 ulp. q reaches 155, so the rounding errors of p = q / v are carried
// along: kLinear and kCubic have two parts each, and p minus its leading part is exact because
// kLinearHigh has few bits.
FUSEDOPS_DEVICE float tanh_form(float x) {
  constexpr float kLinearHigh = -2.30220794677734375f, kLinearLow = -2.5136697e-07f;
  constexpr float kCubicLow = 2.0161985e-09f;
  constexpr float kLowest = -10.85f;          // below it y rounds to -0
  constexpr float kLinearFrom = 5.5f;         // above it y rounds to x
  const float v = x < kLowest ? kLowest : x;  // a NaN stays
  const float square = v * v;
  const float square_low = fmaf(v, v, -square);
  const float p = fmaf(kCubic, square, kLinearHigh);
  const float p_low = fmaf(kCubic, square, kLinearHigh - p) +
                      fmaf(kCubic, square_low, fmaf(kCubicLow, square, kLinearLow));
  const float y = logistic::weigh(v, p, p_low);
  return x > kLinearFrom ? x : y;
}

FUSEDOPS_DEVICE double tanh_form(double v) {
  const double y = v / (1.0 + exp(-v * (kSlope + kSlopeCubic / 3.0 * v * v)));
  return v < -40.0 ? -0.0 : y;
}

// The lower tail of the standard normal distribution at -|v|, and exp(-v^2 / 2), the bell. The tail
// is the bell times a polynomial in 1 / (1 + 0.3 |v|), fitted for |v| <= 14: relative error 8.4e-8.
// The rounding errors of the exponent are carried along, so this holds in the far tail too.
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

// The same for 16-bit results: relative error 1e-5, for |v| <= 13.
FUSEDOPS_DEVICE NormalTail normal_tail_fast(float v) {
  const float a = fminf(fabsf(v), 40.0f);
  const float bell = math::exp2_fast(-0.72134752f * a * a);
  const float t = math::reciprocal_fast(fmaf(0.3f, a, 1.0f));
  float p = -0.0845933035f;
  p = fmaf(p, t, 0.240573078f);
  p = fmaf(p, t, -0.0486448854f);
  p = fmaf(p, t, 0.164764851f);
  p = fmaf(p, t, 0.106704369f);
  p = fmaf(p, t, 0.121274732f);
  p = fmaf(p, t, -7.97922694e-05f);
  return {bell * p, bell};
}

// Erf form: y = 0.5 v (1 + erf(v / sqrt 2)), v times the normal distribution's cumulative function.
// The tail is 0 at the bound, so -inf gives the limit.
FUSEDOPS_DEVICE float erf_form_fast(float v) {
  const float a = fminf(fabsf(v), 40.0f);
  return fmaf(-a, normal_tail_fast(v).tail, math::max_keeping_nan(v, 0.0f));
}

FUSEDOPS_DEVICE float erf_form(float v) {
  const float tail = normal_tail(v).tail;
  const float y = v * (v < 0.0f ? tail : 1.0f - tail);
  return v < -40.0f ? -0.0f : y;
}

FUSEDOPS_DEVICE double erf_form(double v) { return v < -40.0 ? -0.0 : v * math::normal_cdf(v); }

// e must stay finite: 2^q reaches 2^126 at -10, and e^q' the limit of a double past -20.
FUSEDOPS_DEVICE float tanh_form_slope(float x) {
  const float v = logistic::clamp(x, 10.0f);
  const float e = math::exp2_fast(v * fmaf(kCubic, v * v, kLinear));
  const float s = math::reciprocal_fast(1.0f + e);
  return logistic::slope(v, e, s, float(kSlope) + float(kSlopeCubic) * v * v);
}

FUSEDOPS_DEVICE double tanh_form_slope(double x) {
  const double v = logistic::clamp(x, 20.0);
  const double e = exp(-v * (kSlope + kSlopeCubic / 3.0 * v * v));
  return logistic::slope(v, e, 1.0 / (1.0 + e), kSlope + kSlopeCubic * v * v);
}

// dy/dv of the erf form, from tail and bell at v.
FUSEDOPS_DEVICE float erf_form_slope(float v, const NormalTail& at) {
  return (v < 0.0f ? at.tail : 1.0f - at.tail) + v * float(kInvSqrt2Pi) * at.bell;
}

FUSEDOPS_DEVICE float erf_form_slope_fast(float x) {
  const float v = logistic::clamp(x, 40.0f);
  return erf_form_slope(v, normal_tail_fast(v));
}

FUSEDOPS_DEVICE float erf_form_slope(float x) {
  const float v = logistic::clamp(x, 40.0f);
  return erf_form_slope(v, normal_tail(v));
}

FUSEDOPS_DEVICE double erf_form_slope(double x) {
  const double v = logistic::clamp(x, 40.0);
  return math::normal_cdf(v) + v * kInvSqrt2Pi * exp(-0.5 * v * v);
}

}  // namespace fusedops::gelu
