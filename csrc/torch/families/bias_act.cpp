// The binding of bias + activation and of the gradients.
#include "ops/bias_act.h"

#include <string>
#include <tuple>

#include "torch/api.h"

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
    const TensorView view = Api::view(x);
    const auto call = ops::check_bias_act(op, activation, view, Api::view(bias));
    const Api::Guard guard(view.device.index);
    const Tensor in = Api::contiguous(x), b = Api::contiguous(bias);
    Tensor y = Api::empty_like(in);
    ops::bias_act(op, call, Api::data(y), Api::data(in), Api::data(b), gpu_of(view));
    return y;
  }

  static Pair bias_act_backward(const char* op, Activation activation, const Tensor& grad,
                                const Tensor& x, const Tensor& bias) {
    const TensorView view = Api::view(x);
    const auto call =
        ops::check_bias_act_backward(op, activation, Api::view(grad), view, Api::view(bias));
    const Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x), b = Api::contiguous(bias);
    Tensor grad_x = Api::empty_like(in), grad_bias = Api::empty_like(b);
    const Gpu on = gpu_of(view);
    const Tensor scratch =
        Api::empty_bytes(in, FUSEDOPS_KERNEL(on, bias_act_backward_scratch)(call));
    ops::bias_act_backward(op, call, Api::data(grad_x), Api::data(grad_bias), Api::data(g),
                           Api::data(in), Api::data(b), Api::data(scratch), on);
    return {grad_x, grad_bias};
  }
};

FUSEDOPS_FAMILY(bias_act, m) {
  FUSEDOPS_OPERATOR(m, "bias_add", &BiasAct::bias_add);
  FUSEDOPS_OPERATOR(m, "bias_relu", &BiasAct::bias_relu);
  FUSEDOPS_OPERATOR(m, "bias_gelu", &BiasAct::bias_gelu);
  m.impl("bias_relu_backward", FUSEDOPS_BOX(&BiasAct::bias_relu_backward));
  m.impl("bias_gelu_backward", FUSEDOPS_BOX(&BiasAct::bias_gelu_backward));
}

}  // namespace fusedops
