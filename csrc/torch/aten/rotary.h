// The kernels of rotary for libtorch's C++ API.
#pragma once

#include "torch/aten/api.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/rotary.h"

namespace fusedops {

inline void register_rotary(Registrar m) {
  using boxed::box;
  using Native = Rotary<AtenApi>;
  m.impl("apply_rotary_pos_emb", box<&Native::apply_rotary_pos_emb>());
  m.impl("apply_rotary_pos_emb_", box<&Native::apply_rotary_pos_emb_>());
  m.impl("apply_rotary_pos_emb_backward", box<&Native::apply_rotary_pos_emb_backward>());
}

}  // namespace fusedops
