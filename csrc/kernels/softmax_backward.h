// The gradient of y = softmax(scale scores + ...) with respect to the scores.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct SoftmaxBackward {
  DType dtype;  // of every tensor
  std::int64_t rows;
  std::int64_t keys;
  double scale;
};

// grad_scores = scale y (grad - sum of grad y over the row). All three are contiguous [rows, keys],
// start on 16 bytes and are not empty.
gpu::Status softmax_backward(const SoftmaxBackward& call, void* grad_scores, const void* grad,
                             const void* y, gpu::Stream stream);

}  // namespace fusedops::kernels
