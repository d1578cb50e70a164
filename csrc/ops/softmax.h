// softmax of attention scores and its gradient: what is allowed, and the launch.
#pragma once

#include <optional>

#include "kernels/softmax.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// What torch's operator is called with beside tensors.
struct SoftmaxOptions {
  bool causal;
  std::int64_t window;
  double scale;
  std::int64_t head_offset;
  std::int64_t mp_size;
};

void check_softmax(const char* op, const TensorView& scores, const std::optional<TensorView>& mask,
                   const std::optional<TensorView>& alibi, const SoftmaxOptions& options);

// Whether the kernels can read a mask or an alibi where it lies: its keys are neighbours, or one.
bool readable(const TensorView& bias);

// What is to be computed. The tensors have been checked and are readable.
kernels::Softmax softmax_call(const TensorView& scores, const std::optional<TensorView>& mask,
                              const std::optional<TensorView>& alibi,
                              const SoftmaxOptions& options);

void softmax(const char* op, const kernels::Softmax& call, void* y, const void* scores,
             void* scratch, gpu::Stream stream);

kernels::SoftmaxBackward check_softmax_backward(const char* op, const TensorView& grad,
                                                const TensorView& y, double scale);

void softmax_backward(const char* op, const kernels::SoftmaxBackward& call, void* grad_scores,
                      const void* grad, const void* y, gpu::Stream stream);

}  // namespace fusedops::ops
