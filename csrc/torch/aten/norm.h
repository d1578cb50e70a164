// The kernels of norm for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/norm.h"

namespace fusedops {

inline void register_norm(Registrar m) {
  using boxed::box;
  using Native = Norm<AtenApi>;
  m.impl("layer_norm", box<&Native::layer_norm>());
  m.impl("layer_norm_residual", box<&Native::layer_norm_residual>());
  m.impl("layer_norm_residual_store", box<&Native::layer_norm_residual_store>());
  m.impl("rms_norm", box<&Native::rms_norm>());
  m.impl("pre_rms_norm", box<&Native::pre_rms_norm>());
  m.impl("layer_norm_backward", box<&Native::layer_norm_backward>());
  m.impl("rms_norm_backward", box<&Native::rms_norm_backward>());
}

}  // namespace fusedops
