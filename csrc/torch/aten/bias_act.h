// The kernels of bias_act for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/bias_act.h"

namespace fusedops {

inline void register_bias_act(Registrar m) {
  using boxed::box;
  using Native = BiasAct<AtenApi>;
  m.impl("bias_add", box<&Native::bias_add>());
  m.impl("bias_relu", box<&Native::bias_relu>());
  m.impl("bias_gelu", box<&Native::bias_gelu>());
  m.impl("bias_relu_backward", box<&Native::bias_relu_backward>());
  m.impl("bias_gelu_backward", box<&Native::bias_gelu_backward>());
}

}  // namespace fusedops
