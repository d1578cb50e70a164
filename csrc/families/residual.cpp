// Sums with a residual.

#include "ops/residual.h"

#include "families/api.h"

namespace fusedops {

struct Residual {
  static Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias) {
    constexpr const char* op = "bias_residual";
    const TensorView& view = x.view();
    const auto call = ops::check_bias_residual(op, view, residual.view(), bias.view());
    const Tensor in = contiguous(x), r = contiguous(residual), b = contiguous(bias);
    Tensor out = empty_like(in);
    ops::bias_residual(op, call, out.data(), in.data(), r.data(), b.data(), gpu_of(view));
    return out;
  }

  static Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual,
                                  const OptionalTensor& attention,
                                  const OptionalTensor& attention_bias, const Tensor& final_bias,
                                  std::int64_t mp_size, bool mlp_after_attn, bool add_bias,
                                  bool preln) {
    constexpr const char* op = "residual_add_bias";
    const ops::ResidualOptions options{mp_size, mlp_after_attn, add_bias, preln};
    const TensorView& view = hidden.view();
    const auto call =
        ops::check_residual_add_bias(op, view, residual.view(), view_if(attention),
                                     view_if(attention_bias), final_bias.view(), options);
    const Tensor h = contiguous(hidden), r = contiguous(residual);
    const Tensor b = contiguous(final_bias);
    const OptionalTensor a = contiguous_if(attention), a_bias = contiguous_if(attention_bias);
    Tensor out = empty_like(h);
    const ops::Parts parts{h.data(), r.data(), data_of(a), data_of(a_bias), b.data()};
    ops::residual_add_bias(op, call, out.data(), parts, options, gpu_of(view));
    return out;
  }

  static Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output) {
    constexpr const char* op = "moe_res_matmul";
    const TensorView& view = residual.view();
    const auto call = ops::check_moe_res_matmul(op, view, coef.view(), output.view());
    const Tensor r = contiguous(residual), c = contiguous(coef);
    const Tensor o = contiguous(output);
    Tensor out = empty_like(r);
    ops::moe_res_matmul(op, call, out.data(), r.data(), c.data(), o.data(), gpu_of(view));
    return out;
  }
};

FUSEDOPS_FAMILY(residual, m) {
  m.op<&Residual::bias_residual>("bias_residual");
  m.op<&Residual::residual_add_bias>("residual_add_bias");
  m.op<&Residual::moe_res_matmul>("moe_res_matmul");
}

}  // namespace fusedops
