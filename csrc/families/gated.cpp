// gated_activation and its gradient.
#include "ops/gated.h"

#include <string>
#include <tuple>
#include <vector>

#include "families/api.h"

namespace fusedops {

struct Gated {
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor gated_activation(const Tensor& x, const OptionalTensor& bias,
                                 const std::string& kind) {
    constexpr const char* op = "gated_activation";
    const TensorView& view = x.view();
    const auto call = ops::check_gated(op, ops::gate_of(op, kind), view, view_if(bias));
    const Tensor in = contiguous(x);
    const OptionalTensor b = contiguous_if(bias);
    std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.dim);
    sizes.back() = call.cols;
    Tensor y = empty(in, sizes, view.dtype);
    ops::gated(op, call, y.data(), in.data(), data_of(b), gpu_of(view));
    return y;
  }

  static Pair gated_activation_backward(const Tensor& grad, const Tensor& x,
                                        const OptionalTensor& bias, const std::string& kind) {
    constexpr const char* op = "gated_activation_backward";
    const TensorView& view = x.view();
    const auto call =
        ops::check_gated_backward(op, ops::gate_of(op, kind), grad.view(), view, view_if(bias));
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x);
    const OptionalTensor b = contiguous_if(bias);
    Tensor grad_x = empty_like(in);
    Tensor grad_bias = empty(in, {b ? 2 * call.cols : 0}, view.dtype);
    const Gpu on = gpu_of(view);
    const Tensor scratch =
        empty_bytes(in, b ? FUSEDOPS_KERNEL(on, gated_backward_scratch)(call) : 0);
    ops::gated_backward(op, call, grad_x.data(), grad_bias.data(), g.data(), in.data(), data_of(b),
                        scratch.data(), on);
    return {grad_x, grad_bias};
  }
};

FUSEDOPS_FAMILY(gated, m) {
  m.op<&Gated::gated_activation>("gated_activation");
  m.op_without_out<&Gated::gated_activation_backward>("gated_activation_backward");
}

}  // namespace fusedops
