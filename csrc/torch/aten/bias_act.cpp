// bias_act alone, as built just in time for the torch that is there: registered at load.
#include "torch/frontend/bias_act.h"

#include "torch/aten/api.h"
#include "torch/aten/registrar.h"

TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  fusedops::BiasAct<fusedops::AtenApi>::register_with(fusedops::Registrar(m));
}
