// vector_add: what is allowed, and the launch.
#pragma once

#include "ops/tensor_view.h"
#include "platform/runtime.h"

namespace fusedops::ops {

void check_vector_add(const char* op, const TensorView& a, const TensorView& b);

// `a` has been checked; all three are contiguous.
void vector_add(const char* op, const TensorView& a, double gamma, void* out, const void* a_data,
                const void* b_data, gpu::Stream stream);

}  // namespace fusedops::ops
