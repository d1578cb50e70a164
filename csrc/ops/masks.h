// What is added to attention scores, masks and alibi: checks, the same and in the same order as
// fusedops/masks.py, and what kernels are told of it.
#pragma once

#include "kernels/softmax.h"
#include "ops/validate.h"

namespace fusedops::ops {

constexpr std::int64_t kAnyKeys = -1;

struct ScoreSizes {
  std::int64_t batch, heads, queries;
  std::int64_t keys;  // or kAnyKeys
};

void check_window(const char* op, std::int64_t window);

// [B, L], an encoder's, or [B, Sq, L] or [B, H, Sq, L], a decoder's; any size may be 1. `like`
// gives the dtype and the device.
void check_mask(const char* op, const Argument& mask, const Argument& like,
                const ScoreSizes& scores);

// Dtype and device of what is added.
void check_added(const char* op, const Argument& added, const Argument& like);

kernels::ScoreBias::Type type_of(const TensorView& bias, const TensorView& like);

// In elements; 0 along what is broadcast.
std::int64_t stride_of(const TensorView& bias, std::int64_t dim);

}  // namespace fusedops::ops
