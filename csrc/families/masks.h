// Masks and alibi, which are added to attention scores: their checks, and their form for the
// kernels.
#pragma once

#include "families/checks.h"
#include "kernels/softmax.h"

namespace fusedops {

constexpr std::int64_t kAnyKeys = -1;

struct ScoreSizes {
  std::int64_t batch, heads, queries;
  std::int64_t keys;  // or kAnyKeys
};

// A mask is [B, L] for an encoder, or [B, Sq, L] or [B, H, Sq, L] for a decoder. Any size may be 1.
// `like` has the expected dtype and device.
bool is_mask(const TensorView& mask, const TensorView& like, const ScoreSizes& scores);
// Whether dtype and device are those of what is added to the scores.
bool is_added(const TensorView& added, const TensorView& like);

kernels::ScoreBias::Type type_of(const TensorView& bias, const TensorView& like);

// The stride in elements; 0 along a broadcast dimension.
std::int64_t stride_of(const TensorView& bias, std::int64_t dim);

}  // namespace fusedops
