// gated_activation and its gradient.
#include "families/gated.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "families/api.h"

namespace fusedops {

struct GatedOps {
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor gated_activation(const Tensor& x, const OptionalTensor& bias,
                                 const std::string& kind) {
    const kernels::Gated call = checked(x, bias, kind);
    const Tensor in = contiguous(x);
    const OptionalTensor b = contiguous_if(bias);
    const Tensor y = empty(in, sizes_with(x, call.cols), call.dtype);
    launch_gated(call, y.data(), in.data(), data_of(b), gpu_of(x));
    return y;
  }

  static Pair gated_activation_backward(const Tensor& grad, const Tensor& x,
                                        const OptionalTensor& bias, const std::string& kind) {
    const kernels::Gated call = checked(x, bias, kind);
    require(is_like(grad, x) && is_half(grad, x));
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x);
    const OptionalTensor b = contiguous_if(bias);
    const Tensor grad_x = empty_like(in);
    const Tensor grad_bias = empty(in, {b ? 2 * call.cols : 0}, call.dtype);
    const Gpu on = gpu_of(x);
    const OptionalTensor room =
        scratch(in, b ? FUSEDOPS_KERNEL(on, gated_backward_scratch)(call) : 0);
    // With no rows, a zero gradient of the bias must still be written.
    if (call.cols > 0 && (call.rows > 0 || b)) {
      // Without a bias, its gradient and the scratch are empty: their data is null.
      check_launch(
          on, FUSEDOPS_KERNEL(on, gated_backward)(call, grad_x.data(), grad_bias.data(), g.data(),
                                                  in.data(), data_of(b), data_of(room), on.stream));
    }
    return {grad_x, grad_bias};
  }

 private:
  static Activation gate_of(const std::string& kind) {
    if (kind == "geglu") return Activation::gelu_tanh;
    if (kind == "geglu_erf") return Activation::gelu_erf;
    if (kind == "swiglu") return Activation::silu;
    require(kind == "reglu");
    return Activation::relu;
  }

  static kernels::Gated checked(const Tensor& x, const OptionalTensor& bias,
                                const std::string& kind) {
    const Activation gate = gate_of(kind);
    require(has_rows(x) && cols_of(x) % 2 == 0 && is_row_of_if(bias, x));
    check_on_gpu("x", x);
    return {x.view().dtype, gate, rows_of(x), cols_of(x) / 2};
  }

  // Whether `grad` has the shape of x with half the columns.
  static bool is_half(const TensorView& grad, const TensorView& x) {
    return grad.dim == x.dim && cols_of(grad) == cols_of(x) / 2 &&
           std::equal(x.sizes, x.sizes + x.dim - 1, grad.sizes);
  }
};

FUSEDOPS_FAMILY(gated, m) {
  m.op<&GatedOps::gated_activation>("gated_activation");
  m.op_without_out<&GatedOps::gated_activation_backward>("gated_activation_backward");
}

}  // namespace fusedops
