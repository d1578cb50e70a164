// Bias + activation, and the gradients.
#include "ops/bias_act.h"

#include <string>
#include <tuple>

#include "families/api.h"

namespace fusedops {

struct BiasAct {
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor bias_add(const Tensor& x, const Tensor& bias) {
    return bias_act("bias_add", Activation::identity, x, bias);
  }

  static Tensor bias_relu(const Tensor& x, const Tensor& bias) {
    return bias_act("bias_relu", Activation::relu, x, bias);
  }

  static Tensor bias_gelu(const Tensor& x, const Tensor& bias, const std::string& approximate) {
    constexpr const char* op = "bias_gelu";
    return bias_act(op, ops::gelu_form(op, approximate), x, bias);
  }

  static Pair bias_relu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias) {
    return bias_act_backward("bias_relu_backward", Activation::relu, grad, x, bias);
  }

  static Pair bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias,
                                 const std::string& approximate) {
    constexpr const char* op = "bias_gelu_backward";
    return bias_act_backward(op, ops::gelu_form(op, approximate), grad, x, bias);
  }

 private:
  static Tensor bias_act(const char* op, Activation activation, const Tensor& x,
                         const Tensor& bias) {
    const TensorView& view = x.view();
    const auto call = ops::check_bias_act(op, activation, view, bias.view());
    const Tensor in = contiguous(x), b = contiguous(bias);
    Tensor y = empty_like(in);
    ops::bias_act(op, call, y.data(), in.data(), b.data(), gpu_of(view));
    return y;
  }

  static Pair bias_act_backward(const char* op, Activation activation, const Tensor& grad,
                                const Tensor& x, const Tensor& bias) {
    const TensorView& view = x.view();
    const auto call = ops::check_bias_act_backward(op, activation, grad.view(), view, bias.view());
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x), b = contiguous(bias);
    Tensor grad_x = empty_like(in), grad_bias = empty_like(b);
    const Gpu on = gpu_of(view);
    const Tensor scratch = empty_bytes(in, FUSEDOPS_KERNEL(on, bias_act_backward_scratch)(call));
    ops::bias_act_backward(op, call, grad_x.data(), grad_bias.data(), g.data(), in.data(), b.data(),
                           scratch.data(), on);
    return {grad_x, grad_bias};
  }
};

FUSEDOPS_FAMILY(bias_act, m) {
  m.op<&BiasAct::bias_add>("bias_add");
  m.op<&BiasAct::bias_relu>("bias_relu");
  m.op<&BiasAct::bias_gelu>("bias_gelu");
  m.op_without_out<&BiasAct::bias_relu_backward>("bias_relu_backward");
  m.op_without_out<&BiasAct::bias_gelu_backward>("bias_gelu_backward");
}

}  // namespace fusedops
