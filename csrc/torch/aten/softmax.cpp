// softmax alone, as built just in time for the torch that is there: registered at load.
#include "torch/aten/softmax.h"

TORCH_LIBRARY_IMPL(fusedops, CUDA, m) { fusedops::register_softmax(m); }
