// Scales and the launch of dequantize, which products with int8 weights use too.
#pragma once

#include "families/checks.h"
#include "kernels/dequantize.h"

namespace fusedops {

// Whether `scale` has an element for each of some equal groups of the weight's rows.
inline bool is_scale(const TensorView& scale, const TensorView& weight) {
  return scale.dtype == DType::float32 && same_device(scale, weight) && scale.dim == 1 &&
         scale.sizes[0] >= 1 && weight.sizes[0] % scale.sizes[0] == 0;
}

inline void launch_dequantize(const kernels::Dequantize& call, void* result, const void* weight,
                              const void* scale, const Gpu& on) {
  if (call.elements == 0) return;
  check_launch(on, FUSEDOPS_KERNEL(on, dequantize)(call, result, weight,
                                                   static_cast<const float*>(scale), on.stream));
}

}  // namespace fusedops
