// y = f(x + bias), row by row, and its gradients: grad_x = grad f'(x + bias), and grad_bias, the
// sum of grad_x over the rows.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct BiasAct {
  DType dtype;  // of every tensor
  Activation activation;
  std::int64_t rows;
  std::int64_t cols;
};

// x and y are contiguous [rows, cols], bias is [cols]. None may be empty.
gpu::Status bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                     gpu::Stream stream);

// The bytes of scratch memory that bias_act_backward needs.
std::int64_t bias_act_backward_scratch(const BiasAct& call);

// grad_x, grad and x are contiguous [rows, cols] and start on 16 bytes; grad_bias and bias are
// [cols]. cols must not be 0. The sum is taken in the accumulator's type, in an order that depends
// on the shape alone.
gpu::Status bias_act_backward(const BiasAct& call, void* grad_x, void* grad_bias, const void* grad,
                              const void* x, const void* bias, void* scratch, gpu::Stream stream);

}  // namespace fusedops::kernels
