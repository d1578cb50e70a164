#include "ops/attention.h"

#include <algorithm>
#include <limits>

#include "ops/masks.h"
#include "ops/rotary.h"
#include "ops/validate.h"

namespace fusedops::ops {
namespace {

using kernels::ScoreBias;

constexpr std::int64_t kMost = std::numeric_limits<int>::max();

std::string number(std::int64_t n) { return std::to_string(n); }

std::int64_t check_qkv(const char* op, const TensorView& qkv, const AttentionOptions& options) {
  if (qkv.dtype == DType::unsupported || qkv.dtype == DType::float64) {
    fail(op, "qkv", "dtype float32, float16 or bfloat16", qkv.dtype_name);
  }
  const std::int64_t heads = options.heads, kv_heads = options.kv_heads;
  if (kv_heads < 1 || heads < 1 || heads % kv_heads != 0) {
    fail(op, "heads", "a multiple of " + number(kv_heads) + " (kv_heads)", number(heads));
  }
  const std::int64_t packed = heads + 2 * kv_heads;
  if (qkv.dim != 3 || qkv.sizes[2] == 0 || qkv.sizes[2] % packed != 0) {
    fail(op, "qkv", "shape [B, S, a multiple of " + number(packed) + "] (heads of q, k and v)",
         shape_of(qkv));
  }
  const std::int64_t head_dim = qkv.sizes[2] / packed;
  if (head_dim > kernels::kMostHeadDim) {
    fail(op, "qkv", "heads of at most " + number(kernels::kMostHeadDim), number(head_dim));
  }
  if (qkv.sizes[1] != 1) fail(op, "qkv", "1 token of each sequence", number(qkv.sizes[1]));
  return head_dim;
}

void check_options(const char* op, std::int64_t head_dim, const AttentionOptions& options) {
  is_interleaved(op, "rotary_style", options.rotary_style);
  if (options.rotary_dim < 0 || options.rotary_dim > head_dim || options.rotary_dim % 2 != 0) {
    fail(op, "rotary_dim", "an even number up to " + number(head_dim) + " (the size of a head)",
         number(options.rotary_dim));
  }
  check_theta(op, options.theta);
  check_window(op, options.window);
}

void check_alibi(const char* op, const TensorView& alibi, const TensorView& qkv,
                 std::int64_t heads) {
  check_added(op, {"alibi", alibi}, {"qkv", qkv});
  if (alibi.dim != 1 || alibi.sizes[0] != heads) {
    fail(op, "alibi", "shape [" + number(heads) + "] (a slope a head)", shape_of(alibi));
  }
}

void check_cache(const char* op, const AttentionTensors& tensors, std::int64_t kv_heads,
                 std::int64_t row) {
  const TensorView& keys = tensors.keys;
  const std::int64_t batch = tensors.qkv.sizes[0];
  check_like(op, {"keys", keys}, {"qkv", tensors.qkv});
  if (keys.dim != 4 || keys.sizes[0] < batch || keys.sizes[1] != kv_heads || keys.sizes[3] != row) {
    fail(op, "keys",
         "shape [" + number(batch) + " or more, " + number(kv_heads) + ", tokens, " + number(row) +
             "]",
         shape_of(keys));
  }
  check_alike(op, {"values", tensors.values}, {"keys", keys});
}

void check_state(const char* op, const char* name, const TensorView& tensor, const char* dtype,
                 const TensorView& qkv, std::int64_t least) {
  if (!has_dtype(tensor, dtype)) {
    fail(op, name, std::string("dtype ") + dtype, tensor.dtype_name);
  }
  check_same_device(op, {name, tensor}, {"qkv", qkv});
  if (tensor.dim != 1 || tensor.sizes[0] < least) {
    fail(op, name, "shape [" + number(least) + " or more]", shape_of(tensor));
  }
}

void check_out(const char* op, const TensorView& out, const TensorView& qkv, std::int64_t width) {
  check_like(op, {"out", out}, {"qkv", qkv});
  if (out.dim != 3 || out.sizes[0] != qkv.sizes[0] || out.sizes[1] != 1 || out.sizes[2] != width) {
    fail(op, "out", "shape [" + number(qkv.sizes[0]) + ", 1, " + number(width) + "]",
         shape_of(out));
  }
}

void check_contiguous(const char* op, const Argument& a) {
  std::int64_t step = 1;
  for (std::int64_t i = a.tensor.dim - 1; i >= 0; --i) {
    if (a.tensor.sizes[i] == 0) return;
    if (a.tensor.sizes[i] != 1 && a.tensor.strides[i] != step) {
      fail(op, a.name, "a contiguous tensor", "strides " + strides_of(a.tensor));
    }
    step *= a.tensor.sizes[i];
  }
}

// Checked only here: Python has no address while it traces.
void check_aligned(const char* op, const Argument& a) {
  if (!aligned(a.tensor.data)) {
    fail(op, a.name, "memory that starts on 16 bytes", "memory off it");
  }
}

ScoreBias mask_of(const TensorView& mask, const TensorView& qkv) {
  const std::int64_t head = mask.dim == 4 ? stride_of(mask, 1) : 0;
  const std::int64_t key = stride_of(mask, mask.dim - 1);
  return {type_of(mask, qkv), mask.data, stride_of(mask, 0), head, 0, key};
}

}  // namespace

kernels::AttentionStep check_attention_step(const char* op, const AttentionTensors& tensors,
                                            const AttentionOptions& options) {
  const TensorView& qkv = tensors.qkv;
  const std::int64_t head_dim = check_qkv(op, qkv, options);
  check_options(op, head_dim, options);
  const std::int64_t heads = options.heads, kv_heads = options.kv_heads;
  if (tensors.mask) {
    check_mask(op, {"mask", *tensors.mask}, {"qkv", qkv}, {qkv.sizes[0], heads, 1, kAnyKeys});
  }
  if (tensors.alibi) check_alibi(op, *tensors.alibi, qkv, heads);
  const std::int64_t lanes = kVectorBytes / element_size(qkv.dtype);
  const std::int64_t row = (head_dim + lanes - 1) / lanes * lanes, batch = qkv.sizes[0];
  check_cache(op, tensors, kv_heads, row);
  check_state(op, "positions", tensors.positions, "int32", qkv, batch);
  check_state(op, "counters", tensors.counters, "int32", qkv,
              kernels::attention_counters(batch, heads, kv_heads));
  check_state(op, "partials", tensors.partials, "float32", qkv, 0);
  check_out(op, tensors.out, qkv, heads * head_dim);
  for (const Argument& written :
       {Argument{"keys", tensors.keys}, Argument{"values", tensors.values},
        Argument{"positions", tensors.positions}, Argument{"counters", tensors.counters},
        Argument{"partials", tensors.partials}, Argument{"out", tensors.out}}) {
    check_contiguous(op, written);
  }
  check_on_gpu(op, {"qkv", qkv});
  check_aligned(op, {"keys", tensors.keys});
  check_aligned(op, {"values", tensors.values});
  check_aligned(op, {"partials", tensors.partials});

  const auto narrow = [](std::int64_t n) { return static_cast<int>(std::min(n, kMost)); };
  kernels::AttentionStep call{};
  call.attention = {
      qkv.dtype,
      narrow(batch),
      narrow(heads),
      narrow(kv_heads),
      narrow(head_dim),
      narrow(options.rotary_dim),
      is_interleaved(op, "rotary_style", options.rotary_style),
      options.theta,
      {tensors.keys.data, tensors.values.data, static_cast<std::int32_t*>(tensors.positions.data),
       narrow(tensors.keys.sizes[2]), narrow(row)}};
  call.advance = options.advance;
  call.scale = static_cast<float>(options.scale);
  call.window = narrow(options.window);
  call.mask_keys = narrow(kMost);
  if (tensors.mask) {
    call.mask = mask_of(*tensors.mask, qkv);
    const std::int64_t keys = tensors.mask->sizes[tensors.mask->dim - 1];
    if (keys != 1) call.mask_keys = narrow(keys);
  }
  if (tensors.alibi) {
    call.alibi = {
        type_of(*tensors.alibi, qkv), tensors.alibi->data, 0, stride_of(*tensors.alibi, 0), 0, 0};
  }
  return call;
}

void attention_step(const char* op, const kernels::AttentionStep& call,
                    const AttentionTensors& tensors, const void* qkv, const Gpu& on) {
  if (call.attention.batch == 0) return;
  check_launch(
      op, on,
      FUSEDOPS_KERNEL(on, attention_step)(
          call, tensors.out.data, qkv, static_cast<std::int32_t*>(tensors.counters.data),
          static_cast<float*>(tensors.partials.data), tensors.partials.sizes[0], on.stream));
}

}  // namespace fusedops::ops
