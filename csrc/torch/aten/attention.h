// The kernel of attention for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/attention.h"

namespace fusedops {

inline void register_attention(Registrar m) {
  using boxed::box;
  using Native = Attention<AtenApi>;
  m.impl("softmax_context_step", box<&Native::softmax_context_step>());
}

}  // namespace fusedops
