// Registers residual for the CUDA key (HIP's too) through the stable ABI. Its schemas are defined
// in Python, in fusedops/schemas.py.
#include "torch/frontend/residual.h"

#include "torch/stable/api.h"
#include "torch/stable/registrar.h"

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::Residual<fusedops::StableApi>::register_with(fusedops::StableRegistrar{m});
}
