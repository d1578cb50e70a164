// out = gamma a + b, element by element.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// All three hold `elements` contiguous elements of `dtype`; `elements` is not 0.
gpu::Status vector_add(DType dtype, std::int64_t elements, double gamma, void* out, const void* a,
                       const void* b, gpu::Stream stream);

}  // namespace fusedops::kernels
