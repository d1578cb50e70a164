// y = (x1 + bias1) f(x2 + bias2), row by row, where x1 and x2 are the halves of the rows of x; and
// its gradients with respect to x and bias.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Gated {
  DType dtype;      // of every tensor
  Activation gate;  // relu, gelu_tanh, gelu_erf or silu
  std::int64_t rows;
  std::int64_t cols;  // columns of y
};

// y is contiguous [rows, cols] and starts on 16 bytes. x is contiguous [rows, 2 cols]; bias is [2
// cols] or null. None may be empty.
gpu::Status gated(const Gated& call, void* y, const void* x, const void* bias, gpu::Stream stream);

// The bytes of scratch memory that gated_backward needs for a call with a bias.
std::int64_t gated_backward_scratch(const Gated& call);

// grad is contiguous [rows, cols], grad_x and x are [rows, 2 cols], grad_bias and bias are [2
// cols]. cols must not be 0, and all start on 16 bytes. Without a bias, grad_bias and scratch are
// not used and rows must not be 0. The sum over the rows is taken in the accumulator's type, in an
// order that depends on the shape alone.
gpu::Status gated_backward(const Gated& call, void* grad_x, void* grad_bias, const void* grad,
                           const void* x, const void* bias, void* scratch, gpu::Stream stream);

}  // namespace fusedops::kernels
