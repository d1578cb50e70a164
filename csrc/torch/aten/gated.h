// The kernels of gated for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/gated.h"

namespace fusedops {

inline void register_gated(Registrar m) {
  using boxed::box;
  using Native = Gated<AtenApi>;
  m.impl("gated_activation", box<&Native::gated_activation>());
  m.impl("gated_activation_backward", box<&Native::gated_activation_backward>());
}

}  // namespace fusedops
