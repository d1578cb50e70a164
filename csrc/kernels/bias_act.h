// y = f(x + bias), row by row.
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

// x and y are contiguous [rows, cols], bias [cols]; none may be empty.
gpu::Status bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                     gpu::Stream stream);

}  // namespace fusedops::kernels
