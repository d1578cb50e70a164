#include "ops/bias_act.h"

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

// x[..., N] and bias[N] must have one dtype and device.
kernels::BiasAct check_bias(const char* op, Activation activation, const TensorView& x,
                            const TensorView& bias) {
  const Argument x_argument{"x", x}, bias_argument{"bias", bias};
  check_rows(op, x_argument);
  check_row_like(op, bias_argument, x_argument);
  return {x.dtype, activation, rows_of(x), x.sizes[x.dim - 1]};
}

}  // namespace

Activation gelu_form(const char* op, const std::string& approximate) {
  if (approximate == "tanh") return Activation::gelu_tanh;
  if (approximate == "none") return Activation::gelu_erf;
  fail(op, "approximate", "'tanh' or 'none'", "'" + approximate + "'");
}

kernels::BiasAct check_bias_act(const char* op, Activation activation, const TensorView& x,
                                const TensorView& bias) {
  const kernels::BiasAct call = check_bias(op, activation, x, bias);
  check_on_gpu(op, {"x", x});
  return call;
}

kernels::BiasAct check_bias_act_backward(const char* op, Activation activation,
                                         const TensorView& grad, const TensorView& x,
                                         const TensorView& bias) {
  const kernels::BiasAct call = check_bias(op, activation, x, bias);
  const Argument x_argument{"x", x}, grad_argument{"grad", grad};
  check_alike(op, grad_argument, x_argument);
  check_on_gpu(op, x_argument);
  return call;
}

void bias_act(const char* op, const kernels::BiasAct& call, void* y, const void* x,
              const void* bias, const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, bias_act)(call, y, x, bias, on.stream));
}

void bias_act_backward(const char* op, const kernels::BiasAct& call, void* grad_x, void* grad_bias,
                       const void* grad, const void* x, const void* bias, void* scratch,
                       const Gpu& on) {
  if (call.cols == 0) return;  // with no rows, a zero gradient of the bias must still be written
  check_launch(op, on,
               FUSEDOPS_KERNEL(on, bias_act_backward)(call, grad_x, grad_bias, grad, x, bias,
                                                      scratch, on.stream));
}

}  // namespace fusedops::ops
