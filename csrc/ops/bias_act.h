// The checks and the launch of bias_add, bias_relu, bias_gelu and their gradients.
#pragma once

#include <string>

#include "kernels/bias_act.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The form of GELU that `approximate` names, "tanh" or "none".
Activation gelu_form(const char* op, const std::string& approximate);

// Checks the arguments and returns the kernel's call. The binding makes tensors contiguous.
kernels::BiasAct check_bias_act(const char* op, Activation activation, const TensorView& x,
                                const TensorView& bias);
kernels::BiasAct check_bias_act_backward(const char* op, Activation activation,
                                         const TensorView& grad, const TensorView& x,
                                         const TensorView& bias);

void bias_act(const char* op, const kernels::BiasAct& call, void* y, const void* x,
              const void* bias, const Gpu& on);
void bias_act_backward(const char* op, const kernels::BiasAct& call, void* grad_x, void* grad_bias,
                       const void* grad, const void* x, const void* bias, void* scratch,
                       const Gpu& on);

}  // namespace fusedops::ops
