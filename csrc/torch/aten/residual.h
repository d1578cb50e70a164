// The kernels of residual for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/residual.h"

namespace fusedops {

inline void register_residual(Registrar m) {
  using boxed::box;
  using Native = Residual<AtenApi>;
  m.impl("bias_residual", box<&Native::bias_residual>());
  m.impl("residual_add_bias", box<&Native::residual_add_bias>());
  m.impl("moe_res_matmul", box<&Native::moe_res_matmul>());
}

}  // namespace fusedops
