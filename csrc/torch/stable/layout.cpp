// Registers add_padding and pad_transform for the CUDA key (HIP's too) through the stable ABI.
// Their schemas are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/layout.h"

#include "torch/stable/api.h"
#include "torch/stable/registrar.h"

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::Layout<fusedops::StableApi>::register_with(fusedops::StableRegistrar{m});
}
