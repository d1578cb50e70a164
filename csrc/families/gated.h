// The launch of a gated activation, which products of matrices use too.
#pragma once

#include "families/checks.h"
#include "kernels/gated.h"

namespace fusedops {

// `bias` may be null.
inline void launch_gated(const kernels::Gated& call, void* y, const void* x, const void* bias,
                         const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(on, FUSEDOPS_KERNEL(on, gated)(call, y, x, bias, on.stream));
}

}  // namespace fusedops
