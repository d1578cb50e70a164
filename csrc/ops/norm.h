// layer_norm, rms_norm, their forms with a residual, and the gradients: what is allowed, and the
// launch.
#pragma once

#include <initializer_list>

#include "kernels/norm.h"
#include "ops/validate.h"

namespace fusedops::ops {

// What a norm takes beside x; null for what it does not.
struct NormOperands {
  const Argument* bias = nullptr;
  const Argument* residual = nullptr;
  const Argument* gamma = nullptr;
  const Argument* beta = nullptr;
};

// Checks the arguments, in the order of NormOperands, and says what is to be computed; the norm is
// centered where there is a beta. Contiguity and alignment are the front end's concern.
kernels::Norm check_norm(const char* op, const Argument& x, const NormOperands& with, double eps);
// The same of a gradient: `grads` are those of the results, like x.
kernels::Norm check_norm_backward(const char* op, bool centered, const Argument& x,
                                  const Argument& gamma,
                                  std::initializer_list<const Argument*> grads, double eps);

void norm(const char* op, const kernels::Norm& call, const kernels::NormTensors& tensors,
          gpu::Stream stream);
void norm_backward(const char* op, const kernels::Norm& call,
                   const kernels::NormBackwardTensors& tensors, gpu::Stream stream);

}  // namespace fusedops::ops
