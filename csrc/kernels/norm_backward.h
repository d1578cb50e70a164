// Gradients of norms (norm.h). With n the normalised row and g = grad gamma,
//   grad_x = (g - mean(g) - n mean(g n)) / deviation + grad_sum, without mean(g) if not centered,
//   grad_gamma = sum of grad n over the rows, grad_beta = sum of grad.
#pragma once

#include "kernels/norm.h"

namespace fusedops::kernels {

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
