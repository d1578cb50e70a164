// Norms of rows, and their gradients.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Norm {
  DType dtype;    // of every tensor
  bool centered;  // layer norm: the row less its mean over its standard deviation; else RMS norm
  std::int64_t rows;
  std::int64_t cols;
  double eps;
};

// Contiguous tensors that start on 16 bytes: [rows, cols] or, the three marked so, [cols].
struct NormTensors {
  const void* x;
  const void* bias;      // [cols], null for none; only with residual
  const void* residual;  // null for none
  const void* gamma;     // [cols]
  const void* beta;      // [cols]; null where not centered
  void* y;
  void* sum;  // what x + bias + residual is stored in, null for nowhere; it may be `residual`
};

// Neither rows nor cols is 0.
gpu::Status norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);

// Contiguous tensors that start on 16 bytes: [rows, cols] or, those marked so, [cols].
struct NormBackwardTensors {
  const void* grad;      // of y
  const void* grad_sum;  // of the stored sum; null for none
  const void* x;         // what was normalised, a sum with what was added to it
  const void* gamma;     // [cols]
  void* grad_x;
  void* grad_gamma;  // [cols]
  void* grad_beta;   // [cols]; null where not centered
  void* scratch;
};

// Bytes of scratch that norm_backward needs for the call.
std::int64_t norm_backward_scratch(const Norm& call);

// cols is not 0. The sums over the rows are taken in the accumulator's type in an order that
// depends on the shape alone. Mean and deviation are found again: x is read anyway.
gpu::Status norm_backward(const Norm& call, const NormBackwardTensors& tensors, gpu::Stream stream);

}  // namespace fusedops::kernels
