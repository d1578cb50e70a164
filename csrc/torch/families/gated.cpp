// The binding of gated_activation and of its gradient.
#include "ops/gated.h"

#include <string>
#include <tuple>
#include <vector>

#include "torch/api.h"

namespace fusedops {

struct Gated {
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor gated_activation(const Tensor& x, const OptionalTensor& bias,
                                 const std::string& kind) {
    constexpr const char* op = "gated_activation";
    const TensorView view = Api::view(x);
    const auto call = ops::check_gated(op, ops::gate_of(op, kind), view, view_if(bias));
    const Api::Guard guard(view.device.index);
    const Tensor in = Api::contiguous(x);
    const OptionalTensor b = contiguous_if(bias);
    std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.dim);
    sizes.back() = call.cols;
    Tensor y = Api::empty(in, sizes, view.dtype);
    ops::gated(op, call, Api::data(y), Api::data(in), data_of(b), gpu_of(view));
    return y;
  }

  static Pair gated_activation_backward(const Tensor& grad, const Tensor& x,
                                        const OptionalTensor& bias, const std::string& kind) {
    constexpr const char* op = "gated_activation_backward";
    const TensorView view = Api::view(x);
    const auto call =
        ops::check_gated_backward(op, ops::gate_of(op, kind), Api::view(grad), view, view_if(bias));
    const Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x);
    const OptionalTensor b = contiguous_if(bias);
    Tensor grad_x = Api::empty_like(in);
    Tensor grad_bias = Api::empty(in, {b ? 2 * call.cols : 0}, view.dtype);
    const Gpu on = gpu_of(view);
    const Tensor scratch =
        Api::empty_bytes(in, b ? FUSEDOPS_KERNEL(on, gated_backward_scratch)(call) : 0);
    ops::gated_backward(op, call, Api::data(grad_x), Api::data(grad_bias), Api::data(g),
                        Api::data(in), data_of(b), Api::data(scratch), on);
    return {grad_x, grad_bias};
  }
};

FUSEDOPS_FAMILY(gated, m) {
  FUSEDOPS_OPERATOR(m, "gated_activation", &Gated::gated_activation);
  m.impl("gated_activation_backward", FUSEDOPS_BOX(&Gated::gated_activation_backward));
}

}  // namespace fusedops
