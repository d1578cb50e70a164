// Sums of a residual, other matrices of its shape, and rows.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Matrices {
  DType dtype;  // of every tensor
  std::int64_t rows;
  std::int64_t cols;
};

// All matrices are contiguous [rows, cols], and all rows are [cols]. None may be empty. `out`
// starts on 16 bytes.

// out = x + bias + residual
gpu::Status bias_residual(const Matrices& call, void* out, const void* x, const void* residual,
                          const void* bias, gpu::Stream stream);

// out = hidden + attention_scale * attention + scale * (residual + final_bias + attention_bias);
// attention_bias may be null.
struct ResidualAddBias {
  const void *hidden, *residual, *attention, *attention_bias, *final_bias;
  double attention_scale, scale;
};
gpu::Status residual_add_bias(const Matrices& call, void* out, const ResidualAddBias& of,
                              gpu::Stream stream);

// out = output * coef[cols:] + residual * coef[:cols]; coef is [2 cols]
gpu::Status moe_res_matmul(const Matrices& call, void* out, const void* residual, const void* coef,
                           const void* output, gpu::Stream stream);

}  // namespace fusedops::kernels
