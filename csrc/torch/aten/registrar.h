// Where a family registers its kernels: torch's dispatcher, and whoever else wants to know of them.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "torch/aten/boxed.h"

namespace fusedops {

struct Registered {
  std::string name;
  c10::BoxedKernel kernel;
};

class Registrar {
 public:
  // Not explicit: TORCH_LIBRARY_IMPL's library is one.
  Registrar(torch::Library& library, std::vector<Registered>* registered = nullptr)
      : library_(library), registered_(registered) {}

  template <auto kFunction>
  void impl(const char* name) {
    c10::BoxedKernel kernel = boxed::box<kFunction>();
    library_.impl(name, torch::CppFunction::makeFromBoxedKernel(kernel));
    if (registered_) registered_->push_back({name, std::move(kernel)});
  }

 private:
  torch::Library& library_;
  std::vector<Registered>* registered_;
};

}  // namespace fusedops
