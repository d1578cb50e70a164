// Registers dequantize for the CUDA key (HIP's too) through the stable ABI. Its schema is defined
// in Python, in fusedops/schemas.py.
#include "torch/frontend/dequantize.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/api.h"

using Native = fusedops::Dequantize<fusedops::StableApi>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("dequantize", TORCH_BOX(&Native::dequantize));
}
