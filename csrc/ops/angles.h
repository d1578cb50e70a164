// What says by which angles the elements of a head turn: checks, the same as in
// fusedops/families/rotary/checks.py.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

#include "ops/error.h"

namespace fusedops::ops {

// Whether neighbours turn together ("interleaved"), or elements half of them apart ("half").
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

}  // namespace fusedops::ops
