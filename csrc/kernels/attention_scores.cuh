// From the product of a query and a key to the number that softmax is taken of.
#pragma once

#include "kernels/attention.h"
#include "kernels/softmax_row.cuh"

namespace fusedops::attention {

using softmax_row::base_of;
using softmax_row::kLog2E;
using softmax_row::kNothing;
using softmax_row::slope_of;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr int kHeads = kernels::kHeadsTogether;

// 2^(z - base), where `base` is base_of a number that is not less than z. 0 for a dropped key.
FUSEDOPS_DEVICE float weight(float z, float base) { return math::exp2_fast(z - base); }

// The keys that one sequence's token attends to, and what is added to their scores. `h` counts
// heads from the block's first.
template <class T>
struct Scores {
  const kernels::AttentionStep& call;
  float scale;   // includes log2 e: weights are powers of 2
  int position;  // the token's own
  int first;     // first key of the window
  int head;      // the block's first head
  int heads;
  std::int64_t mask_at;  // index of that head's first key

  FUSEDOPS_DEVICE Scores(const kernels::AttentionStep& of, int batch, int first_head, int here,
                         int at)
      : call(of),
        scale(of.scale * static_cast<float>(kLog2E)),
        position(at),
        first(of.window > 0 && of.window <= at ? at + 1 - of.window : 0),
        head(first_head),
        heads(here),
        mask_at(batch * of.mask.batch + first_head * of.mask.head) {}

  // Whether a mask or alibi is added.
  FUSEDOPS_DEVICE bool biased() const {
    return call.mask.type != kernels::ScoreBias::Type::none ||
           call.alibi.type != kernels::ScoreBias::Type::none;
  }

  FUSEDOPS_DEVICE float slope(int h) const {
    if (call.alibi.type == kernels::ScoreBias::Type::none || h >= heads) return 0;
    return slope_of<T>(call.alibi, head + h);
  }

  // What is added to a key's score; -inf drops the key, whatever its score.
  FUSEDOPS_DEVICE float bias(float slope, int h, int key) const {
    using Type = kernels::ScoreBias::Type;
    const kernels::ScoreBias& mask = call.mask;
    const float of_alibi = slope * static_cast<float>(key - position);
    if (mask.type == Type::none || h >= heads || key >= call.mask_keys) return of_alibi;
    const std::int64_t at = mask_at + h * mask.head + key * mask.key;
    if (mask.type == Type::boolean) {
      return static_cast<const bool*>(mask.data)[at] ? of_alibi : kNothing<float>;
    }
    return of_alibi + (sizeof(T) == 4 || mask.type == Type::float32
                           ? static_cast<const float*>(mask.data)[at]
                           : widen(static_cast<const T*>(mask.data)[at]));
  }

  // The number that softmax is taken of, for powers of 2. The factor log2 e does not make a finite
  // number infinite.
  FUSEDOPS_DEVICE float value(float score, int key) const {
    return sees(key) ? score * scale : kNothing<float>;
  }
  FUSEDOPS_DEVICE float value(float score, float bias, int key) const {
    const float added = math::max_keeping_nan(bias * static_cast<float>(kLog2E), kLowest);
    return sees(key) && bias != kNothing<float> ? fmaf(score, scale, added) : kNothing<float>;
  }

 private:
  FUSEDOPS_DEVICE bool sees(int key) const { return key >= first && key <= position; }
};

}  // namespace fusedops::attention
