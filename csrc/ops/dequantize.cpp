#include "ops/dequantize.h"

#include "ops/validate.h"

namespace fusedops::ops {

std::int64_t check_scale(const char* op, const Argument& scale, const Argument& weight) {
  const TensorView& s = scale.tensor;
  if (s.dtype != DType::float32) fail(op, scale.name, "dtype float32", s.dtype_name);
  check_same_device(op, scale, weight);
  const std::int64_t rows = weight.tensor.sizes[0];
  if (s.dim != 1 || s.sizes[0] < 1 || rows % s.sizes[0] != 0) {
    fail(op, scale.name,
         "shape [groups] with a divisor of " + std::to_string(rows) + " (the rows of " +
             weight.name + ")",
         shape_of(s));
  }
  return s.sizes[0];
}

kernels::Dequantize check_dequantize(const char* op, const Argument& weight, const Argument& scale,
                                     DType dtype, const char* dtype_name) {
  if (dtype == DType::float64 || dtype == DType::unsupported) {
    fail(op, "dtype", "float32, float16 or bfloat16", dtype_name);
  }
  const TensorView& w = weight.tensor;
  const bool packed = has_dtype(w, "uint8");
  if (!packed && !has_dtype(w, "int8")) {
    fail(op, weight.name, "dtype int8 (a value a byte) or uint8 (two)", w.dtype_name);
  }
  if (w.dim != 2) fail(op, weight.name, "2 dimensions", shape_of(w));
  const std::int64_t groups = check_scale(op, scale, weight);
  const std::int64_t elements = elements_of(w) * (packed ? 2 : 1);
  return {dtype, packed, elements, elements / groups};
}

std::int64_t dequantized_cols(const TensorView& weight, const kernels::Dequantize& call) {
  return weight.sizes[1] * (call.packed ? 2 : 1);
}

void dequantize(const char* op, const kernels::Dequantize& call, void* result, const void* weight,
                const void* scale, const Gpu& on) {
  if (call.elements == 0) return;
  check_launch(op, on,
               FUSEDOPS_KERNEL(on, dequantize)(call, result, weight,
                                               static_cast<const float*>(scale), on.stream));
}

}  // namespace fusedops::ops
