// Sums with a residual.
#include "kernels/residual.h"

#include "families/api.h"

namespace fusedops {

struct ResidualOps {
  static Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias) {
    require(has_rows(x) && is_alike(residual, x) && is_row_of(bias, x));
    check_on_gpu("x", x);
    const Tensor in = contiguous(x), r = contiguous(residual), b = contiguous(bias);
    const Tensor out = empty_like(in);
    sum_of_two(out, in, r, b, gpu_of(x));
    return out;
  }

  static Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual,
                                  const OptionalTensor& attention,
                                  const OptionalTensor& attention_bias, const Tensor& final_bias,
                                  std::int64_t mp_size, bool mlp_after_attn, bool add_bias,
                                  bool preln) {
    const bool adds_attention = preln || !mlp_after_attn;
    const bool adds_attention_bias = mlp_after_attn ? preln : add_bias;
    require(mp_size >= 1 && has_rows(hidden) && is_alike(residual, hidden) &&
            is_alike_if(attention, hidden) && (attention || !adds_attention) &&
            is_row_of_if(attention_bias, hidden) && (attention_bias || !adds_attention_bias) &&
            is_row_of(final_bias, hidden));
    check_on_gpu("hidden", hidden);
    const Tensor h = contiguous(hidden), r = contiguous(residual);
    const Tensor b = contiguous(final_bias);
    const OptionalTensor a = contiguous_if(attention), a_bias = contiguous_if(attention_bias);
    const Tensor out = empty_like(h);
    const Gpu on = gpu_of(hidden);
    if (!adds_attention) {
      sum_of_two(out, r, h, b, on);
      return out;
    }
    const kernels::Matrices call = matrices_of(h);
    if (is_empty(call)) return out;
    const double scale = 1.0 / static_cast<double>(mp_size);
    const kernels::ResidualAddBias of{h.data(),   r.data(),
                                      data_of(a), adds_attention_bias ? data_of(a_bias) : nullptr,
                                      b.data(),   mlp_after_attn ? scale : 1.0,
                                      scale};
    check_launch(on, FUSEDOPS_KERNEL(on, residual_add_bias)(call, out.data(), of, on.stream));
    return out;
  }

  static Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output) {
    require(has_rows(residual) && is_row(coef, residual, 2 * cols_of(residual)) &&
            is_alike(output, residual));
    check_on_gpu("residual", residual);
    const Tensor r = contiguous(residual), c = contiguous(coef);
    const Tensor o = contiguous(output);
    const Tensor out = empty_like(r);
    const kernels::Matrices call = matrices_of(r);
    if (is_empty(call)) return out;
    const Gpu on = gpu_of(residual);
    check_launch(on, FUSEDOPS_KERNEL(on, moe_res_matmul)(call, out.data(), r.data(), c.data(),
                                                         o.data(), on.stream));
    return out;
  }

 private:
  static kernels::Matrices matrices_of(const TensorView& x) {
    return {x.dtype, rows_of(x), cols_of(x)};
  }

  static bool is_empty(const kernels::Matrices& call) { return call.rows == 0 || call.cols == 0; }

  // out = x + residual + bias
  static void sum_of_two(const Tensor& out, const Tensor& x, const Tensor& residual,
                         const Tensor& bias, const Gpu& on) {
    const kernels::Matrices call = matrices_of(x);
    if (is_empty(call)) return;
    check_launch(on, FUSEDOPS_KERNEL(on, bias_residual)(call, out.data(), x.data(), residual.data(),
                                                        bias.data(), on.stream));
  }
};

FUSEDOPS_FAMILY(residual, m) {
  m.op<&ResidualOps::bias_residual>("bias_residual");
  m.op<&ResidualOps::residual_add_bias>("residual_add_bias");
  m.op<&ResidualOps::moe_res_matmul>("moe_res_matmul");
}

}  // namespace fusedops
