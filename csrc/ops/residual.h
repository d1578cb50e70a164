// The checks and the launch of bias_residual, residual_add_bias and moe_res_matmul.
#pragma once

#include <optional>

#include "kernels/residual.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// How a transformer block adds up the results of its parts.
struct ResidualOptions {
  std::int64_t mp_size;
  bool mlp_after_attn;
  bool add_bias;
  bool preln;

  bool adds_attention() const { return preln || !mlp_after_attn; }
  bool adds_attention_bias() const { return mlp_after_attn ? preln : add_bias; }
};

// Check the arguments and return the kernel's call. The binding makes tensors contiguous.
kernels::Matrices check_bias_residual(const char* op, const TensorView& x,
                                      const TensorView& residual, const TensorView& bias);
kernels::Matrices check_residual_add_bias(const char* op, const TensorView& hidden,
                                          const TensorView& residual,
                                          const std::optional<TensorView>& attention,
                                          const std::optional<TensorView>& attention_bias,
                                          const TensorView& final_bias,
                                          const ResidualOptions& options);
kernels::Matrices check_moe_res_matmul(const char* op, const TensorView& residual,
                                       const TensorView& coef, const TensorView& output);

struct Parts {
  const void *hidden, *residual, *attention, *attention_bias, *final_bias;
};

void bias_residual(const char* op, const kernels::Matrices& call, void* out, const void* x,
                   const void* residual, const void* bias, const Gpu& on);
void residual_add_bias(const char* op, const kernels::Matrices& call, void* out, const Parts& parts,
                       const ResidualOptions& options, const Gpu& on);
void moe_res_matmul(const char* op, const kernels::Matrices& call, void* out, const void* residual,
                    const void* coef, const void* output, const Gpu& on);

}  // namespace fusedops::ops
