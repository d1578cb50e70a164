// Bias + activation, and the gradients.
#include "families/bias_act.h"

#include <string>
#include <tuple>

#include "families/api.h"

namespace fusedops {

struct BiasActOps {
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor bias_add(const Tensor& x, const Tensor& bias) {
    return bias_act(Activation::identity, x, bias);
  }

  static Tensor bias_relu(const Tensor& x, const Tensor& bias) {
    return bias_act(Activation::relu, x, bias);
  }

  static Tensor bias_gelu(const Tensor& x, const Tensor& bias, const std::string& approximate) {
    return bias_act(gelu_form(approximate), x, bias);
  }

  static Pair bias_relu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias) {
    return bias_act_backward(Activation::relu, grad, x, bias);
  }

  static Pair bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias,
                                 const std::string& approximate) {
    return bias_act_backward(gelu_form(approximate), grad, x, bias);
  }

 private:
  static Activation gelu_form(const std::string& approximate) {
    require(approximate == "tanh" || approximate == "none");
    return approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu_erf;
  }

  static kernels::BiasAct checked(Activation activation, const Tensor& x, const Tensor& bias) {
    require(has_rows(x) && is_row_of(bias, x));
    check_on_gpu("x", x);
    return {x.view().dtype, activation, rows_of(x), cols_of(x)};
  }

  static Tensor bias_act(Activation activation, const Tensor& x, const Tensor& bias) {
    const kernels::BiasAct call = checked(activation, x, bias);
    const Tensor in = contiguous(x), b = contiguous(bias);
    const Tensor y = empty_like(in);
    launch_bias_act(call, y.data(), in.data(), b.data(), gpu_of(x));
    return y;
  }

  static Pair bias_act_backward(Activation activation, const Tensor& grad, const Tensor& x,
                                const Tensor& bias) {
    const kernels::BiasAct call = checked(activation, x, bias);
    require(is_alike(grad, x));
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x), b = contiguous(bias);
    const Tensor grad_x = empty_like(in), grad_bias = empty_like(b);
    const Gpu on = gpu_of(x);
    const OptionalTensor room = scratch(in, FUSEDOPS_KERNEL(on, bias_act_backward_scratch)(call));
    if (call.cols > 0) {  // with no rows, a zero gradient of the bias must still be written
      check_launch(on, FUSEDOPS_KERNEL(on, bias_act_backward)(call, grad_x.data(), grad_bias.data(),
                                                              g.data(), in.data(), b.data(),
                                                              data_of(room), on.stream));
    }
    return {grad_x, grad_bias};
  }
};

FUSEDOPS_FAMILY(bias_act, m) {
  m.op<&BiasActOps::bias_add>("bias_add");
  m.op<&BiasActOps::bias_relu>("bias_relu");
  m.op<&BiasActOps::bias_gelu>("bias_gelu");
  m.op_without_out<&BiasActOps::bias_relu_backward>("bias_relu_backward");
  m.op_without_out<&BiasActOps::bias_gelu_backward>("bias_gelu_backward");
}

}  // namespace fusedops
