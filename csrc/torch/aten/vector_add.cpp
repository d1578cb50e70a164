// vector_add alone, as built just in time for the torch that is there: registered at load.
#include "torch/aten/vector_add.h"

TORCH_LIBRARY_IMPL(fusedops, CUDA, m) { fusedops::register_vector_add(m); }
