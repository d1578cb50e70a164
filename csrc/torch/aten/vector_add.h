// The kernels of vector_add for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/vector_add.h"

namespace fusedops {

inline void register_vector_add(Registrar m) {
  using boxed::box;
  using Native = VectorAdd<AtenApi>;
  m.impl("vector_add", box<&Native::vector_add>());
}

}  // namespace fusedops
