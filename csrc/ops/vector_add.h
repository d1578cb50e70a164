// vector_add: its checks and the launch. A family whose host side is as small as this needs no .cpp
// file.
#pragma once

#include "kernels/vector_add.h"
#include "ops/validate.h"

namespace fusedops::ops {

inline void check_vector_add(const char* op, const TensorView& a, const TensorView& b) {
  const Argument a_argument{"a", a}, b_argument{"b", b};
  check_floating(op, a_argument);
  check_alike(op, b_argument, a_argument);
  check_on_gpu(op, a_argument);
}

// The arguments have been checked, and all three tensors are contiguous.
inline void vector_add(const char* op, const TensorView& a, double gamma, void* out,
                       const void* a_data, const void* b_data, const Gpu& on) {
  const std::int64_t elements = elements_of(a);
  if (elements == 0) return;
  check_launch(
      op, on,
      FUSEDOPS_KERNEL(on, vector_add)(a.dtype, elements, gamma, out, a_data, b_data, on.stream));
}

}  // namespace fusedops::ops
