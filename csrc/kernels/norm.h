// Norms of rows: y = norm(s) gamma + beta, where s is x, or x + bias + residual.
//
// The gradients, with n the normalised row and g = grad gamma:
//   grad_x = (g - mean(g) - n mean(g n)) / deviation + grad_sum, without mean(g) if not centered,
//   grad_gamma = sum of grad n over the rows, grad_beta = sum of grad over the rows.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Norm {
  DType dtype;    // of every tensor
  bool centered;  // layer norm: (row - mean) / standard deviation; else RMS norm
  std::int64_t rows;
  std::int64_t cols;
  double eps;
};

// Contiguous tensors that start on 16 bytes. Their shape is [rows, cols] or, where noted, [cols].
struct NormTensors {
  const void* x;
  const void* bias;      // [cols]; null for none, and null without a residual
  const void* residual;  // null for none
  const void* gamma;     // [cols]
  const void* beta;      // [cols]; null where not centered
  void* y;
  void* sum;  // receives x + bias + residual; null if it is not stored; may be `residual`
  void* scratch = nullptr;
};

// The bytes of scratch memory that norm() needs on the current GPU.
std::int64_t norm_scratch(const Norm& call);

// rows and cols must not be 0.
gpu::Status norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);

// Contiguous tensors that start on 16 bytes. Their shape is [rows, cols] or, where noted, [cols].
struct NormBackwardTensors {
  const void* grad;      // gradient of y
  const void* grad_sum;  // gradient of the stored sum; null for none
  const void* x;         // the normalised tensor, including bias and residual if they were added
  const void* gamma;     // [cols]
  void* grad_x;
  void* grad_gamma;  // [cols]
  void* grad_beta;   // [cols]; null where not centered
  void* scratch;
};

// The bytes of scratch memory that norm_backward needs on the current GPU.
std::int64_t norm_backward_scratch(const Norm& call);

// cols must not be 0. The sums over the rows are taken in the accumulator's type, in an order that
// depends on the shape alone. Mean and deviation are computed again, because x is read anyway.
gpu::Status norm_backward(const Norm& call, const NormBackwardTensors& tensors, gpu::Stream stream);

}  // namespace fusedops::kernels
