// Registers the decode step of attention for the CUDA key (HIP's too) through the stable ABI. Its
// schema is defined in Python, in fusedops/schemas.py.
#include "torch/frontend/attention.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Attention<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("softmax_context_step", TORCH_BOX(&Native::softmax_context_step));
}
