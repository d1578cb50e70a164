// y = norm(s) gamma + beta row by row, where s is x, or a sum with x in it.
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

}  // namespace fusedops::kernels
