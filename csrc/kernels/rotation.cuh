// Sine and cosine of a position times a frequency, exact to the result's type at any position.
#pragma once

#include <cmath>

#include "platform/math.h"

namespace fusedops {

// A rotation: cosine and sine of its angle.
template <class A>
struct alignas(2 * sizeof(A)) Rotation {
  A cos;
  A sin;
};

// An angle in units of 2^-64 of a full turn. Full turns overflow, so a position times a frequency
// loses no digit, however large the position. As float32, an angle of 1e5 rad would be off by 4e-3.
using Angle = std::uint64_t;

// log2(theta) * -2 / rotary_dim. It uses long double, because log2 of a double needs GLIBC_2.29,
// which would raise the wheel's platform tag.
inline double log2_step_of(double theta, int rotary_dim) {
  const long double log2 = std::log2(static_cast<long double>(theta));
  return static_cast<double>(log2 * -2 / rotary_dim);
}

// The angle between two positions for pair i: theta^(-2i / rotary_dim) rad. `log2_step` is
// log2_step_of theta.
FUSEDOPS_DEVICE Angle angle_per_position(double log2_step, unsigned i) {
  constexpr double kTurnsPerRad = 0.15915494309189533577;
  const double turns = exp2(i * log2_step) * kTurnsPerRad;
  return static_cast<Angle>((turns - floor(turns)) * 0x1p64);
}

// The rotation by an angle within an eighth of a turn, by minimax polynomials (error 2e-9).
FUSEDOPS_DEVICE Rotation<float> rotation_near_zero(std::int64_t angle, float) {
  const float x = static_cast<float>(angle) * 3.40612158e-19f;  // 2 pi 2^-64
  const float z = x * x;
  const float sin = fmaf(fmaf(-1.9495636e-4f, z, 8.3319787e-3f), z, -1.6666651e-1f);
  const float cos = fmaf(fmaf(2.4438452e-5f, z, -1.3887368e-3f), z, 4.1666646e-2f);
  return {fmaf(z * z, cos, fmaf(-0.5f, z, 1.0f)), fmaf(x * z, sin, x)};
}

FUSEDOPS_DEVICE Rotation<double> rotation_near_zero(std::int64_t angle, double) {
  Rotation<double> rotation;
  sincospi(static_cast<double>(angle) * 0x1p-63, &rotation.sin, &rotation.cos);
  return rotation;
}

template <class A>
FUSEDOPS_DEVICE Rotation<A> rotation_by(Angle angle) {
  const auto quarter =
      static_cast<unsigned>((angle + (Angle{1} << 61)) >> 62);  // the nearest quarter turn
  const auto rest = static_cast<std::int64_t>(angle - (static_cast<Angle>(quarter) << 62));
  const Rotation<A> at = rotation_near_zero(rest, A{});
  const A sin = quarter & 1 ? at.cos : at.sin;
  const A cos = quarter & 1 ? at.sin : at.cos;
  return {(quarter + 1) & 2 ? -cos : cos, quarter & 2 ? -sin : sin};
}

}  // namespace fusedops
