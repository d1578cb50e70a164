// The binding of softmax over attention scores and of its gradient.

#include "ops/softmax.h"

#include "torch/api.h"

namespace fusedops {

struct Softmax {
  static Tensor softmax(const Tensor& scores, const OptionalTensor& mask,
                        const OptionalTensor& alibi, bool causal, std::int64_t window, double scale,
                        std::int64_t head_offset, std::int64_t mp_size) {
    constexpr const char* op = "softmax";
    const ops::SoftmaxOptions options{causal, window, scale, head_offset, mp_size};
    const TensorView view = Api::view(scores);
    ops::check_softmax(op, view, view_if(mask), view_if(alibi), options);
    const Api::Guard guard(view.device.index);
    const Tensor in = on_16_bytes(scores);
    const OptionalTensor mask_in = readable(mask), alibi_in = readable(alibi);
    Tensor y = Api::empty_like(in);
    const auto call = ops::softmax_call(view, view_if(mask_in), view_if(alibi_in), options);
    const Gpu on = gpu_of(view);
    const std::int64_t bytes = FUSEDOPS_KERNEL(on, softmax_scratch)(call);
    const OptionalTensor scratch =
        bytes > 0 ? OptionalTensor(Api::empty_bytes(in, bytes)) : std::nullopt;
    ops::softmax(op, call, Api::data(y), Api::data(in), data_of(scratch), on);
    return y;
  }

  static Tensor softmax_backward(const Tensor& grad, const Tensor& y, double scale) {
    constexpr const char* op = "softmax_backward";
    const TensorView view = Api::view(grad);
    const auto call = ops::check_softmax_backward(op, view, Api::view(y), scale);
    const Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(y);
    Tensor grad_scores = Api::empty_like(g);
    ops::softmax_backward(op, call, Api::data(grad_scores), Api::data(g), Api::data(in),
                          gpu_of(view));
    return grad_scores;
  }

 private:
  // The tensor itself if the kernels can read it where it lies, else a contiguous copy.
  static OptionalTensor readable(const OptionalTensor& bias) {
    if (!bias || ops::readable(Api::view(*bias))) return bias;
    return Api::contiguous(*bias);
  }
};

FUSEDOPS_FAMILY(softmax, m) {
  FUSEDOPS_OPERATOR(m, "softmax", &Softmax::softmax);
  m.impl("softmax_backward", FUSEDOPS_BOX(&Softmax::softmax_backward));
}

}  // namespace fusedops
