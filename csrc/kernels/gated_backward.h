// Gradients of y = (x1 + bias1) * f(x2 + bias2) with respect to x and bias.
#pragma once

#include "kernels/gated.h"

namespace fusedops::kernels {

// Bytes of scratch that gated_backward needs for a call with a bias.
std::int64_t gated_backward_scratch(const Gated& call);

// grad is contiguous [rows, cols], grad_x and x [rows, 2 cols], grad_bias and bias [2 cols]; cols
// is not 0, and all start on 16 bytes. Without a bias grad_bias and scratch are not used, and rows
// is not 0. The sum over the rows is taken in the accumulator's type in an order that depends on
// the shape alone.
gpu::Status gated_backward(const Gated& call, void* grad_x, void* grad_bias, const void* grad,
                           const void* x, const void* bias, void* scratch, gpu::Stream stream);

}  // namespace fusedops::kernels
