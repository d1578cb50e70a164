// Gradients of y = f(x + bias): grad_x = grad f'(x + bias), grad_bias = its sum over the rows.
#pragma once

#include "kernels/bias_act.h"

namespace fusedops::kernels {

// Bytes of scratch that bias_act_backward needs for the call.
std::int64_t bias_act_backward_scratch(const BiasAct& call);

// grad_x, grad and x are contiguous [rows, cols], grad_bias and bias [cols]; cols is not 0, and
// grad_x, grad and x start on 16 bytes. The sum is taken in the accumulator's type in an order that
// depends on the shape alone.
gpu::Status bias_act_backward(const BiasAct& call, void* grad_x, void* grad_bias, const void* grad,
                              const void* x, const void* bias, void* scratch, gpu::Stream stream);

}  // namespace fusedops::kernels
