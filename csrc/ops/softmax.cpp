#include "ops/softmax.h"

#include <string>

#include "ops/masks.h"
#include "ops/validate.h"

namespace fusedops::ops {
namespace {

using kernels::ScoreBias;

void check_options(const char* op, const TensorView& scores, const SoftmaxOptions& options) {
  check_window(op, options.window);
  if (options.mp_size < 1) fail(op, "mp_size", "1 or more", std::to_string(options.mp_size));
  const std::int64_t others = (options.mp_size - 1) * scores.sizes[1];
  if (options.head_offset < 0 || options.head_offset > others) {
    fail(op, "head_offset", "0 to " + std::to_string(others) + " (the heads of the other ranks)",
         std::to_string(options.head_offset));
  }
}

void check_alibi(const char* op, const Argument& alibi, const Argument& scores,
                 std::int64_t mp_size) {
  const TensorView& view = alibi.tensor;
  const TensorView& like = scores.tensor;
  check_added(op, alibi, scores);
  const std::int64_t heads = mp_size * like.sizes[1], keys = like.sizes[3];
  if ((view.dim == 1 || (view.dim == 2 && view.sizes[1] == keys)) && view.sizes[0] == heads) return;
  const std::string h = std::to_string(heads);
  fail(op, alibi.name, "shape [" + h + "] or [" + h + ", " + std::to_string(keys) + "]",
       shape_of(view));
}

// The stride along the keys; there are `keys` of them.
std::int64_t key_stride(const TensorView& tensor, std::int64_t keys) {
  return keys == 1 ? 1 : stride_of(tensor, tensor.dim - 1);
}

ScoreBias mask_of(const TensorView& mask, const TensorView& scores) {
  return {type_of(mask, scores),
          mask.data,
          stride_of(mask, 0),
          mask.dim == 4 ? stride_of(mask, 1) : 0,
          mask.dim > 2 ? stride_of(mask, mask.dim - 2) : 0,
          key_stride(mask, scores.sizes[3])};
}

ScoreBias alibi_of(const TensorView& alibi, const TensorView& scores, std::int64_t head_offset) {
  const ScoreBias::Type type = type_of(alibi, scores);
  const std::int64_t size =
      type == ScoreBias::Type::float32 ? sizeof(float) : element_size(scores.dtype);
  const auto* const first = static_cast<const char*>(alibi.data);
  return {type, first + head_offset * alibi.strides[0] * size,          0, stride_of(alibi, 0),
          0,    alibi.dim == 2 ? key_stride(alibi, scores.sizes[3]) : 0};
}

}  // namespace

void check_softmax(const char* op, const TensorView& scores, const std::optional<TensorView>& mask,
                   const std::optional<TensorView>& alibi, const SoftmaxOptions& options) {
  const Argument argument{"scores", scores};
  check_floating(op, argument);
  if (scores.dim != 4) fail(op, "scores", "shape [B, H, Sq, L]", shape_of(scores));
  check_options(op, scores, options);
  if (mask) {
    const std::int64_t* const s = scores.sizes;
    check_mask(op, {"mask", *mask}, argument, {s[0], s[1], s[2], s[3]});
  }
  if (alibi) check_alibi(op, {"alibi", *alibi}, argument, options.mp_size);
  check_on_gpu(op, argument);
}

bool readable(const TensorView& bias) {
  const std::int64_t key = bias.dim == 1 ? 1 : stride_of(bias, bias.dim - 1);
  return key == 0 || key == 1;
}

kernels::Softmax softmax_call(const TensorView& scores, const std::optional<TensorView>& mask,
                              const std::optional<TensorView>& alibi,
                              const SoftmaxOptions& options) {
  kernels::Softmax call{};
  call.dtype = scores.dtype;
  call.batch = scores.sizes[0];
  call.heads = scores.sizes[1];
  call.queries = scores.sizes[2];
  call.keys = scores.sizes[3];
  call.scale = options.scale;
  call.causal = options.causal;
  call.window = options.window;
  if (mask) call.mask = mask_of(*mask, scores);
  if (alibi) call.alibi = alibi_of(*alibi, scores, options.head_offset);
  call.slopes = alibi && alibi->dim == 1;
  return call;
}

void softmax(const char* op, const kernels::Softmax& call, void* y, const void* scores,
             void* scratch, const Gpu& on) {
  if (call.rows() == 0 || call.keys == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, softmax)(call, y, scores, scratch, on.stream));
}

kernels::SoftmaxBackward check_softmax_backward(const char* op, const TensorView& grad,
                                                const TensorView& y, double scale) {
  const Argument grad_argument{"grad", grad};
  check_rows(op, grad_argument);
  check_alike(op, {"y", y}, grad_argument);
  check_on_gpu(op, grad_argument);
  return {grad.dtype, rows_of(grad), grad.sizes[grad.dim - 1], scale};
}

void softmax_backward(const char* op, const kernels::SoftmaxBackward& call, void* grad_scores,
                      const void* grad, const void* y, const Gpu& on) {
  if (call.rows == 0) return;
  check_launch(op, on,
               FUSEDOPS_KERNEL(on, softmax_backward)(call, grad_scores, grad, y, on.stream));
}

}  // namespace fusedops::ops
