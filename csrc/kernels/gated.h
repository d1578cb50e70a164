// y = (x1 + bias1) * f(x2 + bias2), row by row, where x1 and x2 are the halves of the rows of x.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Gated {
  DType dtype;      // of every tensor
  Activation gate;  // relu, gelu_tanh, gelu_erf or silu
  std::int64_t rows;
  std::int64_t cols;  // of y
};

// y is contiguous [rows, cols] and starts on 16 bytes; x is contiguous [rows, 2 cols], bias
// [2 cols] or null. None may be empty.
gpu::Status gated(const Gated& call, void* y, const void* x, const void* bias, gpu::Stream stream);

}  // namespace fusedops::kernels
