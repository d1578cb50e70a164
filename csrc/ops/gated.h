// The checks and the launch of gated_activation and its gradient.
#pragma once

#include <optional>
#include <string>

#include "kernels/gated.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The activation of the gate that `kind` names.
Activation gate_of(const char* op, const std::string& kind);

// Checks the arguments and returns the kernel's call. The binding makes tensors contiguous.
kernels::Gated check_gated(const char* op, Activation gate, const TensorView& x,
                           const std::optional<TensorView>& bias);
kernels::Gated check_gated_backward(const char* op, Activation gate, const TensorView& grad,
                                    const TensorView& x, const std::optional<TensorView>& bias);

// If bias is null, grad_bias and scratch are null too.
void gated(const char* op, const kernels::Gated& call, void* y, const void* x, const void* bias,
           const Gpu& on);
void gated_backward(const char* op, const kernels::Gated& call, void* grad_x, void* grad_bias,
                    const void* grad, const void* x, const void* bias, void* scratch,
                    const Gpu& on);

}  // namespace fusedops::ops
