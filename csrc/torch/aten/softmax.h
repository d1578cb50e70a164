// The kernels of softmax for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/softmax.h"

namespace fusedops {

inline void register_softmax(Registrar m) {
  using boxed::box;
  using Native = Softmax<AtenApi>;
  m.impl("softmax", box<&Native::softmax>());
  m.impl("softmax_backward", box<&Native::softmax_backward>());
}

}  // namespace fusedops
