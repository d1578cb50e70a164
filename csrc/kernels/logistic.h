// The logistic function times v, v / (1 + 2^q). SiLU is that, and so is GELU's tanh form. The
// quotient has no cancellation for negative v.
//
// SiLU is v / (1 + exp(-v)) (Hendrycks & Gimpel 2016; Elfwing, Uchibe & Doya 2017). -inf gives the
// limit, -0.
#pragma once

#include <cmath>

#include "platform/math.h"

namespace fusedops::logistic {

// For 16-bit results: two hardware functions, relative error near 1e-5. If 2^q is inf, the result
// is 0 with the sign of v.
FUSEDOPS_DEVICE float weigh_fast(float v, float q) {
  return v * math::reciprocal_fast(1.0f + math::exp2_fast(q));
}

// For float32 results: within 2 ulp of the exact value down to the subnormals, for q = v p up to
// 157. p has two parts, because an error of half an ulp in q would cost 5 ulp of 2^q.
FUSEDOPS_DEVICE float weigh(float v, float p, float p_low) {
  constexpr float kRound =
      12582912.0f - 32.0f;  // adding it rounds to an integer n, stored as n - 32
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
  // Everything is scaled by 2^-32, so that no step leaves the normal numbers.
  const float scaled = math::from_bits(math::to_bits(e) + (math::to_bits(shifted) << 23));
  const float denominator = scaled + 0x1p-32f;
  const float inverse = math::reciprocal_fast(denominator);
  const float guess = v * inverse;
  return fmaf(fmaf(-denominator, guess, v), inverse, guess) * 0x1p-32f;
}

// dy/dv of y = v s(u(v)), where s = 1 / (1 + e) and e = exp(-u). 1 - s is computed as e s, because
// the difference loses its digits where s is near 1. e must be finite.
template <class A>
FUSEDOPS_DEVICE A slope(A v, A e, A s, A du) {
  return s + v * s * (e * s) * du;
}

// Outside the bounds the derivatives are 0 or 1 in every type. NaN stays NaN.
template <class A>
FUSEDOPS_DEVICE A clamp(A v, A bound) {
  return v < -bound ? -bound : (v > bound ? bound : v);
}

}  // namespace fusedops::logistic

namespace fusedops::silu {

constexpr float kLog2e = 1.44269502f, kLog2eLow = 1.92596303e-08f;

// For 16-bit results. At the bound 2^q is already inf, so the result is -0 there and below.
FUSEDOPS_DEVICE float value_fast(float x) {
  const float v = math::max_keeping_nan(x, -89.0f);
  return logistic::weigh_fast(v, -kLog2e * v);
}

// For float32 results: within 2 ulp.
FUSEDOPS_DEVICE float value(float x) {
  constexpr float kLowest = -108.7f;          // below it y rounds to -0
  constexpr float kLinearFrom = 18.0f;        // above it y rounds to x
  const float v = x < kLowest ? kLowest : x;  // a NaN stays
  const float y = logistic::weigh(v, -kLog2e, -kLog2eLow);
  return x > kLinearFrom ? x : y;
}

FUSEDOPS_DEVICE double value(double v) { return v < -760.0 ? -0.0 : v / (1.0 + exp(-v)); }

FUSEDOPS_DEVICE float slope(float x) {
  const float v = logistic::clamp(x, 88.0f);
  const float e = math::exp2_fast(-kLog2e * v);
  return logistic::slope(v, e, math::reciprocal_fast(1.0f + e), 1.0f);
}

FUSEDOPS_DEVICE double slope(double x) {
  const double v = logistic::clamp(x, 700.0);
  const double e = exp(-v);
  return logistic::slope(v, e, 1.0 / (1.0 + e), 1.0);
}

}  // namespace fusedops::silu
