// Registers softmax for the CUDA key (HIP's too) through the stable ABI. Its schemas are defined in
// Python, in fusedops/schemas.py.
#include "torch/frontend/softmax.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Softmax<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("softmax", TORCH_BOX(&Native::softmax));
  m.impl("softmax_backward", TORCH_BOX(&Native::softmax_backward));
}
