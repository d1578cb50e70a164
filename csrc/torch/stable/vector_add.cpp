// Registers vector_add for the CUDA key (HIP's too) through the stable ABI. Its schema is defined
// in Python, in fusedops/schemas.py.
#include "torch/frontend/vector_add.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::VectorAdd<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("vector_add", TORCH_BOX(&Native::vector_add));
}
