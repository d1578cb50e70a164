// softmax over attention scores, and its gradient.

#include "ops/softmax.h"

#include "families/api.h"

namespace fusedops {

struct Softmax {
  static Tensor softmax(const Tensor& scores, const OptionalTensor& mask,
                        const OptionalTensor& alibi, bool causal, std::int64_t window, double scale,
                        std::int64_t head_offset, std::int64_t mp_size) {
    constexpr const char* op = "softmax";
    const ops::SoftmaxOptions options{causal, window, scale, head_offset, mp_size};
    const TensorView& view = scores.view();
    ops::check_softmax(op, view, view_if(mask), view_if(alibi), options);
    const Tensor in = on_16_bytes(scores);
    const OptionalTensor mask_in = readable(mask), alibi_in = readable(alibi);
    Tensor y = empty_like(in);
    const auto call = ops::softmax_call(view, view_if(mask_in), view_if(alibi_in), options);
    const Gpu on = gpu_of(view);
    const std::int64_t bytes = FUSEDOPS_KERNEL(on, softmax_scratch)(call);
    const OptionalTensor scratch =
        bytes > 0 ? OptionalTensor(empty_bytes(in, bytes)) : std::nullopt;
    ops::softmax(op, call, y.data(), in.data(), data_of(scratch), on);
    return y;
  }

  static Tensor softmax_backward(const Tensor& grad, const Tensor& y, double scale) {
    constexpr const char* op = "softmax_backward";
    const TensorView& view = grad.view();
    const auto call = ops::check_softmax_backward(op, view, y.view(), scale);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(y);
    Tensor grad_scores = empty_like(g);
    ops::softmax_backward(op, call, grad_scores.data(), g.data(), in.data(), gpu_of(view));
    return grad_scores;
  }

 private:
  // The tensor itself if the kernels can read it where it lies, else a contiguous copy.
  static OptionalTensor readable(const OptionalTensor& bias) {
    if (!bias || ops::readable(bias->view())) return bias;
    return contiguous(*bias);
  }
};

FUSEDOPS_FAMILY(softmax, m) {
  m.op<&Softmax::softmax>("softmax");
  m.op_without_out<&Softmax::softmax_backward>("softmax_backward");
}

}  // namespace fusedops
