// SiLU, v / (1 + exp(-v)) (Hendrycks & Gimpel 2016; Elfwing, Uchibe & Doya 2017), and its
// derivative. -inf gives the limit, -0.
#pragma once

#include <cmath>

#include "kernels/logistic.h"

namespace fusedops::silu {

constexpr float kLog2e = 1.44269502f, kLog2eLow = 1.92596303e-08f;

// For 16-bit results. At the bound 2^q is inf already, so the result is -0 there and below.
FUSEDOPS_DEVICE float value_fast(float x) {
  const float v = math::max_keeping_nan(x, -89.0f);
  return logistic::weigh_fast(v, -kLog2e * v);
}

// For float32 results: within 2 ulp.
FUSEDOPS_DEVICE float value(float x) {
  constexpr float kLowest = -108.7f;          // under it y rounds to -0
  constexpr float kLinearFrom = 18.0f;        // over it y rounds to x
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
