#include "ops/residual.h"

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

// Checks the first matrix; the others must be like it.
kernels::Matrices check_matrix(const char* op, const Argument& a) {
  check_rows(op, a);
  return {a.tensor.dtype, rows_of(a.tensor), a.tensor.sizes[a.tensor.dim - 1]};
}

bool is_empty(const kernels::Matrices& call) { return call.rows == 0 || call.cols == 0; }

[[noreturn]] void fail_missing(const char* op, const char* name) {
  fail(op, name, "a tensor: these flags add it", "None");
}

}  // namespace

kernels::Matrices check_bias_residual(const char* op, const TensorView& x,
                                      const TensorView& residual, const TensorView& bias) {
  const Argument first{"x", x};
  const kernels::Matrices call = check_matrix(op, first);
  check_alike(op, {"residual", residual}, first);
  check_row_like(op, {"bias", bias}, first);
  check_on_gpu(op, first);
  return call;
}

kernels::Matrices check_residual_add_bias(const char* op, const TensorView& hidden,
                                          const TensorView& residual,
                                          const std::optional<TensorView>& attention,
                                          const std::optional<TensorView>& attention_bias,
                                          const TensorView& final_bias,
                                          const ResidualOptions& options) {
  if (options.mp_size < 1) fail(op, "mp_size", "1 or more", std::to_string(options.mp_size));
  const Argument first{"hidden", hidden};
  const kernels::Matrices call = check_matrix(op, first);
  check_alike(op, {"residual", residual}, first);
  if (attention) {
    check_alike(op, {"attention", *attention}, first);
  } else if (options.adds_attention()) {
    fail_missing(op, "attention");
  }
  if (attention_bias) {
    check_row_like(op, {"attention_bias", *attention_bias}, first);
  } else if (options.adds_attention_bias()) {
    fail_missing(op, "attention_bias");
  }
  check_row_like(op, {"final_bias", final_bias}, first);
  check_on_gpu(op, first);
  return call;
}

kernels::Matrices check_moe_res_matmul(const char* op, const TensorView& residual,
                                       const TensorView& coef, const TensorView& output) {
  const Argument first{"residual", residual}, coef_argument{"coef", coef};
  const kernels::Matrices call = check_matrix(op, first);
  check_like(op, coef_argument, first);
  if (coef.dim != 1 || coef.sizes[0] != 2 * call.cols) {
    fail(op, "coef",
         "shape [" + std::to_string(2 * call.cols) + "] (twice the last dimension of residual)",
         shape_of(coef));
  }
  check_alike(op, {"output", output}, first);
  check_on_gpu(op, first);
  return call;
}

void bias_residual(const char* op, const kernels::Matrices& call, void* out, const void* x,
                   const void* residual, const void* bias, const Gpu& on) {
  if (is_empty(call)) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, bias_residual)(call, out, x, residual, bias, on.stream));
}

void residual_add_bias(const char* op, const kernels::Matrices& call, void* out, const Parts& parts,
                       const ResidualOptions& options, const Gpu& on) {
  if (!options.adds_attention()) {
    bias_residual(op, call, out, parts.residual, parts.hidden, parts.final_bias, on);
    return;
  }
  if (is_empty(call)) return;
  const double scale = 1.0 / static_cast<double>(options.mp_size);
  const void* attention_bias = options.adds_attention_bias() ? parts.attention_bias : nullptr;
  const kernels::ResidualAddBias of{
      parts.hidden,   parts.residual,   parts.attention,
      attention_bias, parts.final_bias, options.mlp_after_attn ? scale : 1.0,
      scale};
  check_launch(op, on, FUSEDOPS_KERNEL(on, residual_add_bias)(call, out, of, on.stream));
}

void moe_res_matmul(const char* op, const kernels::Matrices& call, void* out, const void* residual,
                    const void* coef, const void* output, const Gpu& on) {
  if (is_empty(call)) return;
  check_launch(op, on,
               FUSEDOPS_KERNEL(on, moe_res_matmul)(call, out, residual, coef, output, on.stream));
}

}  // namespace fusedops::ops
