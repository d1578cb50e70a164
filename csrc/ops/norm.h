// The checks and the launch of layer_norm, rms_norm, their forms with a residual, and the
// gradients.
#pragma once

#include <initializer_list>

#include "kernels/norm.h"
#include "ops/validate.h"

namespace fusedops::ops {

// The tensors of a norm except x. Null for one that the norm does not have.
struct NormOperands {
  const Argument* bias = nullptr;
  const Argument* residual = nullptr;
  const Argument* gamma = nullptr;
  const Argument* beta = nullptr;
};

// Checks the arguments in the order of NormOperands and returns the kernel's call. A norm with a
// beta is centered. The binding makes tensors contiguous and aligned.
kernels::Norm check_norm(const char* op, const Argument& x, const NormOperands& with, double eps);
// Checks the arguments of a gradient. `grads` are the gradients of the results; they are like x.
kernels::Norm check_norm_backward(const char* op, bool centered, const Argument& x,
                                  const Argument& gamma,
                                  std::initializer_list<const Argument*> grads, double eps);

void norm(const char* op, const kernels::Norm& call, const kernels::NormTensors& tensors,
          const Gpu& on);
void norm_backward(const char* op, const kernels::Norm& call,
                   const kernels::NormBackwardTensors& tensors, const Gpu& on);

}  // namespace fusedops::ops
