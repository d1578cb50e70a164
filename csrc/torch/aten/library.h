// The operators as functions that torch's dispatcher can call, through libtorch's C++ API.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>

#include <string>
#include <vector>

namespace fusedops {

struct BoxedOperator {
  std::string name;
  c10::BoxedKernel kernel;
};

// X and X_out of all families in this library.
std::vector<BoxedOperator> boxed_operators();

}  // namespace fusedops
