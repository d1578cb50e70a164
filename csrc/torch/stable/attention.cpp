// Registers the decode step of attention for the CUDA key (HIP's too) through the stable ABI. Its
// schema is defined in Python, in fusedops/schemas.py.
#include "torch/frontend/attention.h"

#include "torch/stable/api.h"
#include "torch/stable/registrar.h"

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::Attention<fusedops::StableApi>::register_with(fusedops::StableRegistrar{m});
}
