// Registers the rotary embedding for the CUDA key (HIP's too) through the stable ABI. Its schemas
// are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/rotary.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Rotary<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("apply_rotary_pos_emb", TORCH_BOX(&Native::apply_rotary_pos_emb));
  m.impl("apply_rotary_pos_emb_", TORCH_BOX(&Native::apply_rotary_pos_emb_));
  m.impl("apply_rotary_pos_emb_backward", TORCH_BOX(&Native::apply_rotary_pos_emb_backward));
}
