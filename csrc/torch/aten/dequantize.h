// The kernel of dequantize for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/dequantize.h"

namespace fusedops {

inline void register_dequantize(Registrar m) {
  using boxed::box;
  using Native = Dequantize<AtenApi>;
  m.impl("dequantize", box<&Native::dequantize>());
}

}  // namespace fusedops
