// Attention over a KV cache: one decode step.
#include "ops/attention.h"

#include <string>

#include "families/api.h"

namespace fusedops {

struct Attention {
  static void softmax_context_step(const Tensor& qkv, const OptionalTensor& mask,
                                   const OptionalTensor& alibi, const Tensor& keys,
                                   const Tensor& values, const Tensor& positions,
                                   const Tensor& counters, const Tensor& partials,
                                   const Tensor& out, std::int64_t heads, std::int64_t kv_heads,
                                   double scale, std::int64_t rotary_dim,
                                   const std::string& rotary_style, double theta,
                                   std::int64_t window, bool advance) {
    constexpr const char* op = "softmax_context_step";
    const std::optional<TensorView> of_mask = view_if(mask), of_alibi = view_if(alibi);
    const TensorView of_qkv = qkv.view(), of_keys = keys.view(), of_values = values.view(),
                     of_positions = positions.view(), of_counters = counters.view(),
                     of_partials = partials.view(), of_out = out.view();
    const ops::AttentionTensors tensors{of_qkv,       of_mask,     of_alibi,    of_keys, of_values,
                                        of_positions, of_counters, of_partials, of_out};
    const kernels::AttentionStep call = ops::check_attention_step(
        op, tensors, {heads, kv_heads, scale, rotary_dim, rotary_style, theta, window, advance});
    const Tensor rows = contiguous(qkv);
    ops::attention_step(op, call, tensors, rows.data(), gpu_of(of_qkv));
  }
};

FUSEDOPS_FAMILY(attention, m) {
  m.op_without_out<&Attention::softmax_context_step>("softmax_context_step");
}

}  // namespace fusedops
