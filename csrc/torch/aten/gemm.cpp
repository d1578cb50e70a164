// gemm alone, as built just in time for the torch that is there: registered at load.
#include "torch/frontend/gemm.h"

#include "torch/aten/blas.h"
#include "torch/aten/registrar.h"

TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::Gemm<fusedops::AtenBlas>::register_with(fusedops::Registrar(m));
}
