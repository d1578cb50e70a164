// The rotary position embedding: what is allowed, and the launch.
#pragma once

#include <optional>
#include <string>

#include "kernels/rotary.h"
#include "ops/tensor_view.h"
#include "ops/validate.h"

namespace fusedops::ops {

struct RotaryOptions {
  std::int64_t rotary_dim;
  std::int64_t offset;
  const std::string& style;
  double theta;
};

// Checks the arguments and says what is to be computed, but for where it is read and written.
kernels::Rotary check_rotary(const char* op, const Argument& q, const Argument& k,
                             const std::optional<TensorView>& positions,
                             const RotaryOptions& options);

// What is written where it lies must be runs of memory, and nothing else's.
void check_writable(const char* op, const Argument& heads);

kernels::RotarySide rotary_side(const TensorView& from, const TensorView& to);

void rotary(const char* op, const kernels::Rotary& call, gpu::Stream stream);

}  // namespace fusedops::ops
