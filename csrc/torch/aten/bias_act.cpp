// bias_act alone, as built just in time for the torch that is there: registered at load.
#include "torch/aten/bias_act.h"

TORCH_LIBRARY_IMPL(fusedops, CUDA, m) { fusedops::register_bias_act(m); }
