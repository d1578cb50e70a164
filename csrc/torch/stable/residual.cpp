// Registers residual for the CUDA key (HIP's too) through the stable ABI. Its schemas are defined
// in Python, in fusedops/schemas.py.
#include "torch/frontend/residual.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Residual<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("bias_residual", TORCH_BOX(&Native::bias_residual));
  m.impl("residual_add_bias", TORCH_BOX(&Native::residual_add_bias));
  m.impl("moe_res_matmul", TORCH_BOX(&Native::moe_res_matmul));
}
