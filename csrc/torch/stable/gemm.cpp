// Registers products with weights for the CUDA key (HIP's too) through the stable ABI. Their
// schemas are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/gemm.h"

#include "torch/stable/blas.h"
#include "torch/stable/registrar.h"

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::Gemm<fusedops::StableBlas>::register_with(fusedops::StableRegistrar{m});
}
