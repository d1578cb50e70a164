// The checks and the launch of softmax of attention scores and its gradient.
#pragma once

#include <optional>

#include "kernels/softmax.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The arguments of torch's operator that are not tensors.
struct SoftmaxOptions {
  bool causal;
  std::int64_t window;
  double scale;
  std::int64_t head_offset;
  std::int64_t mp_size;
};

void check_softmax(const char* op, const TensorView& scores, const std::optional<TensorView>& mask,
                   const std::optional<TensorView>& alibi, const SoftmaxOptions& options);

// Whether the kernels can read a mask or alibi where it lies: its keys are neighbours, or it has
// one.
bool readable(const TensorView& bias);

// The kernel's call. The tensors must be checked and readable.
kernels::Softmax softmax_call(const TensorView& scores, const std::optional<TensorView>& mask,
                              const std::optional<TensorView>& alibi,
                              const SoftmaxOptions& options);

void softmax(const char* op, const kernels::Softmax& call, void* y, const void* scores,
             void* scratch, const Gpu& on);

kernels::SoftmaxBackward check_softmax_backward(const char* op, const TensorView& grad,
                                                const TensorView& y, double scale);

void softmax_backward(const char* op, const kernels::SoftmaxBackward& call, void* grad_scores,
                      const void* grad, const void* y, const Gpu& on);

}  // namespace fusedops::ops
