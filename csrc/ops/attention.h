// A decode step of attention over a KV cache: what is allowed, and the launch.
#pragma once

#include <optional>
#include <string>

#include "kernels/attention.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The step's tensors.
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

// Checks the arguments and says what is to be computed. Whether qkv is contiguous is the front
// end's concern.
kernels::AttentionStep check_attention_step(const char* op, const AttentionTensors& tensors,
                                            const AttentionOptions& options);

void attention_step(const char* op, const kernels::AttentionStep& call,
                    const AttentionTensors& tensors, const void* qkv, gpu::Stream stream);

}  // namespace fusedops::ops
