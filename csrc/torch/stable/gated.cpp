// Registers gated_activation for the CUDA key (HIP's too) through the stable ABI. Its schemas are
// defined in Python, in fusedops/schemas.py.
#include "torch/frontend/gated.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Gated<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("gated_activation", TORCH_BOX(&Native::gated_activation));
  m.impl("gated_activation_backward", TORCH_BOX(&Native::gated_activation_backward));
}
