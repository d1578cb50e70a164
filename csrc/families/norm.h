// The launch of a norm, which operators that multiply normalised rows use too.
#pragma once

#include "families/api.h"
#include "families/checks.h"
#include "kernels/norm.h"

namespace fusedops {

// A norm with a beta is centered.
inline kernels::Norm norm_of(const TensorView& x, bool centered, double eps) {
  return {x.dtype, centered, rows_of(x), cols_of(x), eps};
}

// `tensors` are without scratch memory, which is made like x.
inline void launch_norm(const kernels::Norm& call, const Tensor& x, kernels::NormTensors tensors,
                        const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  const OptionalTensor room = scratch(x, FUSEDOPS_KERNEL(on, norm_scratch)(call));
  tensors.scratch = data_of(room);
  check_launch(on, FUSEDOPS_KERNEL(on, norm)(call, tensors, on.stream));
}

}  // namespace fusedops
