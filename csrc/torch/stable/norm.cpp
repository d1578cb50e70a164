// Registers the norms for the CUDA key (HIP's too) through the stable ABI. Their schemas are
// defined in Python, in fusedops/schemas.py.
#include "torch/frontend/norm.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Norm<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("layer_norm", TORCH_BOX(&Native::layer_norm));
  m.impl("layer_norm_residual", TORCH_BOX(&Native::layer_norm_residual));
  m.impl("layer_norm_residual_store", TORCH_BOX(&Native::layer_norm_residual_store));
  m.impl("rms_norm", TORCH_BOX(&Native::rms_norm));
  m.impl("pre_rms_norm", TORCH_BOX(&Native::pre_rms_norm));
  m.impl("layer_norm_backward", TORCH_BOX(&Native::layer_norm_backward));
  m.impl("rms_norm_backward", TORCH_BOX(&Native::rms_norm_backward));
}
