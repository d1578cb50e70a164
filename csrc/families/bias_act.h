// The launch of bias + activation, which products of matrices use too.
#pragma once

#include "families/checks.h"
#include "kernels/bias_act.h"

namespace fusedops {

inline void launch_bias_act(const kernels::BiasAct& call, void* y, const void* x, const void* bias,
                            const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(on, FUSEDOPS_KERNEL(on, bias_act)(call, y, x, bias, on.stream));
}

}  // namespace fusedops
