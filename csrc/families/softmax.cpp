// softmax over attention scores, and its gradient.
#include "kernels/softmax.h"

#include "families/api.h"
#include "families/masks.h"

namespace fusedops {
namespace {

using kernels::ScoreBias;

bool is_alibi(const TensorView& alibi, const TensorView& scores, std::int64_t mp_size) {
  return is_added(alibi, scores) &&
         (alibi.dim == 1 || (alibi.dim == 2 && alibi.sizes[1] == scores.sizes[3])) &&
         alibi.sizes[0] == mp_size * scores.sizes[1];
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
  const auto* const first = static_cast<const char*>(alibi.data);
  return {type_of(alibi, scores),
          first + head_offset * alibi.strides[0] * element_size(alibi.dtype),
          0,
          stride_of(alibi, 0),
          0,
          alibi.dim == 2 ? key_stride(alibi, scores.sizes[3]) : 0};
}

}  // namespace

struct SoftmaxOps {
  static Tensor softmax(const Tensor& scores, const OptionalTensor& mask,
                        const OptionalTensor& alibi, bool causal, std::int64_t window, double scale,
                        std::int64_t head_offset, std::int64_t mp_size) {
    const TensorView& view = scores.view();
    require(is_floating(view) && view.dim == 4 && window >= 0 && mp_size >= 1);
    const std::int64_t* const s = view.sizes;
    require(head_offset >= 0 && head_offset <= (mp_size - 1) * s[1]);
    require(!mask || is_mask(*mask, view, {s[0], s[1], s[2], s[3]}));
    require(!alibi || is_alibi(*alibi, view, mp_size));
    check_on_gpu("scores", scores);
    const Tensor in = on_16_bytes(scores);
    const OptionalTensor mask_in = readable(mask), alibi_in = readable(alibi);
    const Tensor y = empty_like(in);
    kernels::Softmax call{};
    call.dtype = view.dtype;
    call.batch = s[0];
    call.heads = s[1];
    call.queries = s[2];
    call.keys = s[3];
    call.scale = scale;
    call.causal = causal;
    call.window = window;
    if (mask_in) call.mask = mask_of(*mask_in, view);
    if (alibi_in) call.alibi = alibi_of(*alibi_in, view, head_offset);
    call.slopes = alibi && alibi->view().dim == 1;
    const Gpu on = gpu_of(view);
    const OptionalTensor room = scratch(in, FUSEDOPS_KERNEL(on, softmax_scratch)(call));
    if (call.rows() == 0 || call.keys == 0) return y;
    check_launch(on,
                 FUSEDOPS_KERNEL(on, softmax)(call, y.data(), in.data(), data_of(room), on.stream));
    return y;
  }

  static Tensor softmax_backward(const Tensor& grad, const Tensor& y, double scale) {
    require(has_rows(grad) && is_alike(y, grad));
    check_on_gpu("grad", grad);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(y);
    const Tensor grad_scores = empty_like(g);
    const kernels::SoftmaxBackward call{grad.view().dtype, rows_of(grad), cols_of(grad), scale};
    if (call.rows == 0) return grad_scores;
    const Gpu on = gpu_of(grad);
    check_launch(on, FUSEDOPS_KERNEL(on, softmax_backward)(call, grad_scores.data(), g.data(),
                                                           in.data(), on.stream));
    return grad_scores;
  }

 private:
  // The tensor itself if the kernels can read it where it lies, else a contiguous copy. They can if
  // its keys are neighbours, or it has one.
  static OptionalTensor readable(const OptionalTensor& bias) {
    if (!bias) return bias;
    const TensorView& view = *bias;
    const std::int64_t key = view.dim == 1 ? 1 : stride_of(view, view.dim - 1);
    return key == 0 || key == 1 ? *bias : contiguous(*bias);
  }
};

FUSEDOPS_FAMILY(softmax, m) {
  m.op<&SoftmaxOps::softmax>("softmax");
  m.op_without_out<&SoftmaxOps::softmax_backward>("softmax_backward");
}

}  // namespace fusedops
