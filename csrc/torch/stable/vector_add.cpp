// Registers vector_add for the CUDA key (HIP's too) through the stable ABI. Its schema is defined
// in Python, in fusedops/schemas.py.
#include "torch/frontend/vector_add.h"

#include "torch/stable/api.h"
#include "torch/stable/registrar.h"

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::VectorAdd<fusedops::StableApi>::register_with(fusedops::StableRegistrar{m});
}
