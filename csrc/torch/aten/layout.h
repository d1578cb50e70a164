// The kernels of layout for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/layout.h"

namespace fusedops {

inline void register_layout(Registrar m) {
  using boxed::box;
  using Native = Layout<AtenApi>;
  m.impl("add_padding", box<&Native::add_padding>());
  m.impl("pad_transform", box<&Native::pad_transform>());
}

}  // namespace fusedops
