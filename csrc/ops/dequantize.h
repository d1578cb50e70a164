// dequantize: what is allowed, and the launch.
#pragma once

#include "kernels/dequantize.h"
#include "ops/tensor_view.h"
#include "ops/validate.h"

namespace fusedops::ops {

// How many groups of rows of a matrix have a scale each.
std::int64_t check_scale(const char* op, const Argument& scale, const Argument& weight);

// Checks the arguments and says what is to be computed. Contiguity is the front end's concern.
kernels::Dequantize check_dequantize(const char* op, const Argument& weight, const Argument& scale,
                                     DType dtype, const char* dtype_name);

// Columns of the result.
std::int64_t dequantized_cols(const TensorView& weight, const kernels::Dequantize& call);

void dequantize(const char* op, const kernels::Dequantize& call, void* result, const void* weight,
                const void* scale, gpu::Stream stream);

}  // namespace fusedops::ops
