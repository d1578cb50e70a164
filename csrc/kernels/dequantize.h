// Integer weights times the scale of their group of rows.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct Dequantize {
  DType dtype;  // dtype of the result: float32, float16 or bfloat16
  bool packed;  // two 4-bit values a byte, the lower bits first; else int8
  std::int64_t elements;
  std::int64_t group;  // neighbouring elements that share a scale, at least 1
};

// weight and result are contiguous and start on 16 bytes. There is at least one element.
gpu::Status dequantize(const Dequantize& call, void* result, const void* weight, const float* scale,
                       gpu::Stream stream);

}  // namespace fusedops::kernels
