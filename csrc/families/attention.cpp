// Attention over a KV cache: one decode step.
#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <string>

#include "families/api.h"
#include "families/masks.h"

namespace fusedops {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<int>::max();

int narrow(std::int64_t n) { return static_cast<int>(std::min(n, kMost)); }

// The elements of a head, of rows of the heads of q, k and v; refuses other rows.
std::int64_t head_dim_of(const TensorView& qkv, std::int64_t heads, std::int64_t kv_heads) {
  require(is_up_to_32_bits(qkv.dtype) && kv_heads >= 1 && heads >= 1 && heads % kv_heads == 0);
  const std::int64_t packed = heads + 2 * kv_heads;
  require(qkv.dim == 3 && qkv.sizes[1] == 1 && qkv.sizes[2] != 0 && qkv.sizes[2] % packed == 0);
  const std::int64_t head_dim = qkv.sizes[2] / packed;
  require(head_dim <= kernels::kMostHeadDim);
  return head_dim;
}

bool is_cache(const TensorView& keys, const TensorView& qkv, std::int64_t kv_heads,
              std::int64_t row) {
  return is_like(keys, qkv) && keys.dim == 4 && keys.sizes[0] >= qkv.sizes[0] &&
         keys.sizes[1] == kv_heads && keys.sizes[3] == row;
}

// Whether it is one dimension of at least so many elements.
bool is_state(const TensorView& tensor, DType dtype, const TensorView& qkv, std::int64_t least) {
  return tensor.dtype == dtype && same_device(tensor, qkv) && tensor.dim == 1 &&
         tensor.sizes[0] >= least;
}

bool is_context(const TensorView& out, const TensorView& qkv, std::int64_t width) {
  return is_like(out, qkv) && out.dim == 3 && out.sizes[0] == qkv.sizes[0] && out.sizes[1] == 1 &&
         out.sizes[2] == width;
}

kernels::ScoreBias mask_of(const TensorView& mask, const TensorView& qkv) {
  const std::int64_t head = mask.dim == 4 ? stride_of(mask, 1) : 0;
  const std::int64_t key = stride_of(mask, mask.dim - 1);
  return {type_of(mask, qkv), mask.data, stride_of(mask, 0), head, 0, key};
}

}  // namespace

struct AttentionOps {
  static void softmax_context_step(const Tensor& qkv, const OptionalTensor& mask,
                                   const OptionalTensor& alibi, const Tensor& keys,
                                   const Tensor& values, const Tensor& positions,
                                   const Tensor& counters, const Tensor& partials,
                                   const Tensor& out, std::int64_t heads, std::int64_t kv_heads,
                                   double scale, std::int64_t rotary_dim,
                                   const std::string& rotary_style, double theta,
                                   std::int64_t window, bool advance) {
    const std::int64_t head_dim = head_dim_of(qkv, heads, kv_heads);
    const std::int64_t batch = qkv.view().sizes[0];
    const DType dtype = qkv.view().dtype;
    const bool interleaved = is_interleaved(rotary_style);
    require(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0 && is_theta(theta) &&
            window >= 0);
    require(!mask || is_mask(*mask, qkv, {batch, heads, 1, kAnyKeys}));
    require(!alibi ||
            (is_added(*alibi, qkv) && alibi->view().dim == 1 && alibi->view().sizes[0] == heads));
    const std::int64_t lanes = kVectorBytes / element_size(dtype);
    const std::int64_t row = (head_dim + lanes - 1) / lanes * lanes;
    const std::int64_t least = kernels::attention_counters(batch, heads, kv_heads);
    require(is_cache(keys, qkv, kv_heads, row) && is_alike(values, keys) &&
            is_state(positions, DType::int32, qkv, batch) &&
            is_state(counters, DType::int32, qkv, least) &&
            is_state(partials, DType::float32, qkv, 0) && is_context(out, qkv, heads * head_dim));
    for (const Tensor* written : {&keys, &values, &positions, &counters, &partials, &out}) {
      require(is_contiguous(*written));
    }
    check_on_gpu("qkv", qkv);
    check_aligned("keys", keys);
    check_aligned("values", values);
    check_aligned("partials", partials);

    kernels::AttentionStep call{};
    call.attention = {dtype,
                      narrow(batch),
                      narrow(heads),
                      narrow(kv_heads),
                      narrow(head_dim),
                      narrow(rotary_dim),
                      interleaved,
                      theta,
                      {keys.data(), values.data(), static_cast<std::int32_t*>(positions.data()),
                       narrow(keys.view().sizes[2]), narrow(row)}};
    call.advance = advance;
    call.scale = static_cast<float>(scale);
    call.window = narrow(window);
    call.mask_keys = narrow(kMost);
    if (mask) {
      call.mask = mask_of(*mask, qkv);
      if (cols_of(*mask) != 1) call.mask_keys = narrow(cols_of(*mask));
    }
    if (alibi) call.alibi = {type_of(*alibi, qkv), alibi->data(), 0, stride_of(*alibi, 0), 0, 0};
    const Tensor rows = contiguous(qkv);
    if (batch == 0) return;
    const Gpu on = gpu_of(qkv);
    check_launch(on,
                 FUSEDOPS_KERNEL(on, attention_step)(
                     call, out.data(), rows.data(), static_cast<std::int32_t*>(counters.data()),
                     static_cast<float*>(partials.data()), partials.view().sizes[0], on.stream));
  }
};

FUSEDOPS_FAMILY(attention, m) {
  m.op_without_out<&AttentionOps::softmax_context_step>("softmax_context_step");
}

}  // namespace fusedops
