// Where a family registers its kernels: torch's dispatcher, through the stable ABI.
#pragma once

#include <torch/csrc/stable/library.h>

namespace fusedops {

// Library is the one of STABLE_TORCH_LIBRARY_IMPL, whose type has no public name.
template <class Library>
struct StableRegistrar {
  Library& library;

  template <auto kFunction>
  void impl(const char* name) {
    library.impl(name, TORCH_BOX(kFunction));
  }
};

template <class Library>
StableRegistrar(Library&) -> StableRegistrar<Library>;

}  // namespace fusedops
