// The checks and the launch of the rotary position embedding.
#pragma once

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "kernels/rotary.h"
#include "ops/tensor_view.h"
#include "ops/validate.h"

namespace fusedops::ops {

// Whether a pair is two neighbouring elements ("interleaved"), or an element of each half ("half").
// Attention rotates queries and keys too, so it uses this check and the next.
inline bool is_interleaved(const char* op, const char* argument, const std::string& style) {
  if (style == "interleaved") return true;
  if (style == "half") return false;
  fail(op, argument, "'half' or 'interleaved'", "'" + style + "'");
}

inline void check_theta(const char* op, double theta) {
  if (theta > 0 && std::isfinite(theta)) return;
  char found[32];
  std::snprintf(found, sizeof found, "%g", theta);
  fail(op, "theta", "a positive finite number", found);
}

struct RotaryOptions {
  std::int64_t rotary_dim;
  std::int64_t offset;
  const std::string& style;
  double theta;
};

// Checks the arguments and returns the kernel's call, without the places of q and k.
kernels::Rotary check_rotary(const char* op, const Argument& q, const Argument& k,
                             const std::optional<TensorView>& positions,
                             const RotaryOptions& options);

// A tensor that is written in place must have unit stride along its last dimension, and no two
// elements in the same memory.
void check_writable(const char* op, const Argument& heads);

// Queries and keys that are written in place: neither may begin in the memory of the other.
void check_apart(const char* op, const Argument& q, const Argument& k);

kernels::RotarySide rotary_side(const TensorView& from, const TensorView& to);

void rotary(const char* op, const kernels::Rotary& call, const Gpu& on);

}  // namespace fusedops::ops
