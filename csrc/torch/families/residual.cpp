// The binding of the sums with a residual.

#include "ops/residual.h"

#include "torch/api.h"

namespace fusedops {

struct Residual {
  static Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias) {
    constexpr const char* op = "bias_residual";
    const TensorView view = Api::view(x);
    const auto call = ops::check_bias_residual(op, view, Api::view(residual), Api::view(bias));
    const Api::Guard guard(view.device.index);
    const Tensor in = Api::contiguous(x), r = Api::contiguous(residual), b = Api::contiguous(bias);
    Tensor out = Api::empty_like(in);
    ops::bias_residual(op, call, Api::data(out), Api::data(in), Api::data(r), Api::data(b),
                       gpu_of(view));
    return out;
  }

  static Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual,
                                  const OptionalTensor& attention,
                                  const OptionalTensor& attention_bias, const Tensor& final_bias,
                                  std::int64_t mp_size, bool mlp_after_attn, bool add_bias,
                                  bool preln) {
    constexpr const char* op = "residual_add_bias";
    const ops::ResidualOptions options{mp_size, mlp_after_attn, add_bias, preln};
    const TensorView view = Api::view(hidden);
    const auto call =
        ops::check_residual_add_bias(op, view, Api::view(residual), view_if(attention),
                                     view_if(attention_bias), Api::view(final_bias), options);
    const Api::Guard guard(view.device.index);
    const Tensor h = Api::contiguous(hidden), r = Api::contiguous(residual);
    const Tensor b = Api::contiguous(final_bias);
    const OptionalTensor a = contiguous_if(attention), a_bias = contiguous_if(attention_bias);
    Tensor out = Api::empty_like(h);
    const ops::Parts parts{Api::data(h), Api::data(r), data_of(a), data_of(a_bias), Api::data(b)};
    ops::residual_add_bias(op, call, Api::data(out), parts, options, gpu_of(view));
    return out;
  }

  static Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output) {
    constexpr const char* op = "moe_res_matmul";
    const TensorView view = Api::view(residual);
    const auto call = ops::check_moe_res_matmul(op, view, Api::view(coef), Api::view(output));
    const Api::Guard guard(view.device.index);
    const Tensor r = Api::contiguous(residual), c = Api::contiguous(coef);
    const Tensor o = Api::contiguous(output);
    Tensor out = Api::empty_like(r);
    ops::moe_res_matmul(op, call, Api::data(out), Api::data(r), Api::data(c), Api::data(o),
                        gpu_of(view));
    return out;
  }
};

FUSEDOPS_FAMILY(residual, m) {
  FUSEDOPS_OPERATOR(m, "bias_residual", &Residual::bias_residual);
  FUSEDOPS_OPERATOR(m, "residual_add_bias", &Residual::residual_add_bias);
  FUSEDOPS_OPERATOR(m, "moe_res_matmul", &Residual::moe_res_matmul);
}

}  // namespace fusedops
