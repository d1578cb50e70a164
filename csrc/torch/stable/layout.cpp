// Registers add_padding and pad_transform for the CUDA key (HIP's too) through the stable ABI.
// Their schemas are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/layout.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Layout<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("add_padding", TORCH_BOX(&Native::add_padding));
  m.impl("pad_transform", TORCH_BOX(&Native::pad_transform));
}
