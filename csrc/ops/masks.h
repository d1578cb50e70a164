// Checks of masks and alibi, which are added to attention scores, and their form for the kernels.
// They are the checks of the Python package, in the same order.
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

// A mask is [B, L] for an encoder, or [B, Sq, L] or [B, H, Sq, L] for a decoder. Any size may be 1.
// `like` has the expected dtype and device.
void check_mask(const char* op, const Argument& mask, const Argument& like,
                const ScoreSizes& scores);

// Checks dtype and device of a mask or alibi.
void check_added(const char* op, const Argument& added, const Argument& like);

kernels::ScoreBias::Type type_of(const TensorView& bias, const TensorView& like);

// The stride in elements; 0 along a broadcast dimension.
std::int64_t stride_of(const TensorView& bias, std::int64_t dim);

}  // namespace fusedops::ops
