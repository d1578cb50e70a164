#include "ops/gated.h"

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

// x[..., 2N] and, if given, bias[2N] must have one dtype and device.
kernels::Gated check_halves(const char* op, Activation gate, const TensorView& x,
                            const std::optional<TensorView>& bias) {
  const Argument x_argument{"x", x};
  check_rows(op, x_argument);
  const std::int64_t width = x.sizes[x.dim - 1];
  if (width % 2 != 0) {
    fail(op, "x", "an even last dimension (values and gates)", std::to_string(width));
  }
  if (bias) {
    check_row_like(op, {"bias", *bias}, x_argument);
  }
  return {x.dtype, gate, rows_of(x), width / 2};
}

// Whether grad has the shape of x with half the columns.
bool is_half(const TensorView& grad, const TensorView& x, std::int64_t cols) {
  if (grad.dim != x.dim || grad.sizes[x.dim - 1] != cols) return false;
  for (std::int64_t i = 0; i + 1 < x.dim; ++i) {
    if (grad.sizes[i] != x.sizes[i]) return false;
  }
  return true;
}

}  // namespace

Activation gate_of(const char* op, const std::string& kind) {
  if (kind == "geglu") return Activation::gelu_tanh;
  if (kind == "geglu_erf") return Activation::gelu_erf;
  if (kind == "swiglu") return Activation::silu;
  if (kind == "reglu") return Activation::relu;
  fail(op, "kind", "'geglu', 'geglu_erf', 'swiglu' or 'reglu'", "'" + kind + "'");
}

kernels::Gated check_gated(const char* op, Activation gate, const TensorView& x,
                           const std::optional<TensorView>& bias) {
  const kernels::Gated call = check_halves(op, gate, x, bias);
  check_on_gpu(op, {"x", x});
  return call;
}

kernels::Gated check_gated_backward(const char* op, Activation gate, const TensorView& grad,
                                    const TensorView& x, const std::optional<TensorView>& bias) {
  const kernels::Gated call = check_halves(op, gate, x, bias);
  const Argument x_argument{"x", x}, grad_argument{"grad", grad};
  check_like(op, grad_argument, x_argument);
  if (!is_half(grad, x, call.cols)) {
    fail(op, "grad", "the shape of x, " + shape_of(x) + ", with half the last dimension",
         shape_of(grad));
  }
  check_on_gpu(op, x_argument);
  return call;
}

void gated(const char* op, const kernels::Gated& call, void* y, const void* x, const void* bias,
           const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, gated)(call, y, x, bias, on.stream));
}

void gated_backward(const char* op, const kernels::Gated& call, void* grad_x, void* grad_bias,
                    const void* grad, const void* x, const void* bias, void* scratch,
                    const Gpu& on) {
  // With no rows, a zero gradient of the bias must still be written.
  if (call.cols == 0 || (call.rows == 0 && !bias)) return;
  check_launch(op, on,
               FUSEDOPS_KERNEL(on, gated_backward)(call, grad_x, grad_bias, grad, x, bias, scratch,
                                                   on.stream));
}

}  // namespace fusedops::ops
