// The checks and the launch of a decode step of attention over a KV cache.
#pragma once

#include <optional>
#include <string>

#include "kernels/attention.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The tensors of a step.
struct AttentionTensors {
  const TensorView& qkv;
  const std::optional<TensorView>& mask;
  const std::optional<TensorView>& alibi;
  const TensorView& keys;
  const TensorView& values;
  const TensorView& positions;
  const TensorView& counters;
  const TensorView& partials;
  const TensorView& out;
};

struct AttentionOptions {
  std::int64_t heads;
  std::int64_t kv_heads;
  double scale;
  std::int64_t rotary_dim;
  const std::string& rotary_style;
  double theta;
  std::int64_t window;
  bool advance;
};

// Checks the arguments and returns the kernel's call. qkv need not be contiguous yet: the binding
// makes it so.
kernels::AttentionStep check_attention_step(const char* op, const AttentionTensors& tensors,
                                            const AttentionOptions& options);

void attention_step(const char* op, const kernels::AttentionStep& call,
                    const AttentionTensors& tensors, const void* qkv, const Gpu& on);

}  // namespace fusedops::ops
