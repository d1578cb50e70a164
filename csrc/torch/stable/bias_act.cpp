// Registers bias and activation for the CUDA key (HIP's too) through the stable ABI. Their schemas
// are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/bias_act.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::BiasAct<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("bias_add", TORCH_BOX(&Native::bias_add));
  m.impl("bias_relu", TORCH_BOX(&Native::bias_relu));
  m.impl("bias_gelu", TORCH_BOX(&Native::bias_gelu));
  m.impl("bias_relu_backward", TORCH_BOX(&Native::bias_relu_backward));
  m.impl("bias_gelu_backward", TORCH_BOX(&Native::bias_gelu_backward));
}
