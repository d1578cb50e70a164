// The checks and the launch of dequantize.
#pragma once

#include "kernels/dequantize.h"
#include "ops/tensor_view.h"
#include "ops/validate.h"

namespace fusedops::ops {

// Checks a weight's scales. Returns how many groups of rows have a scale each.
std::int64_t check_scale(const char* op, const Argument& scale, const Argument& weight);

// Checks the arguments and returns the kernel's call. The binding makes tensors contiguous.
kernels::Dequantize check_dequantize(const char* op, const Argument& weight, const Argument& scale,
                                     DType dtype, const char* dtype_name);

// The columns of the result.
std::int64_t dequantized_cols(const TensorView& weight, const kernels::Dequantize& call);

void dequantize(const char* op, const kernels::Dequantize& call, void* result, const void* weight,
                const void* scale, const Gpu& on);

}  // namespace fusedops::ops
