// The launch of a norm, which operators that multiply normalised rows use too.
#pragma once

#include "families/checks.h"
#include "kernels/norm.h"

namespace fusedops {

// A norm with a beta is centered.
inline kernels::Norm norm_of(const TensorView& x, bool centered, double eps) {
  return {x.dtype, centered, rows_of(x), cols_of(x), eps};
}

inline void launch_norm(const kernels::Norm& call, const kernels::NormTensors& tensors,
                        const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(on, FUSEDOPS_KERNEL(on, norm)(call, tensors, on.stream));
}

}  // namespace fusedops
