// Integer weights times the scale of their group of rows.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Dequantize {
  DType dtype;  // of the result: float32, float16 or bfloat16
  bool packed;  // two 4-bit values a byte, the lower bits first; else int8
  std::int64_t elements;
  std::int64_t group;  // neighbouring elements of one scale, at least 1
};

// weight and result are contiguous and lie on 16 bytes; there is an element.
gpu::Status dequantize(const Dequantize& call, void* result, const void* weight, const float* scale,
                       gpu::Stream stream);

}  // namespace fusedops::kernels
