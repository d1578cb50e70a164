// A product of a decode step: y = f(RMS(x) weight), or y = residual + RMS(x) weight, for few rows
// of x. Its time is the time to read the weight, and that of one such product after the other is
// less if each begins to read before the one before it has ended.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

struct GemmDecode {
  DType dtype;
  Activation activation;  // f
  bool gated;             // y = v1 f(v2), where v1 and v2 are the halves of v = RMS(x) weight
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t cols;   // columns of y; a gated call's weight has twice as many
  std::int64_t pitch;  // elements from one column of the weight, contiguous, to the next
  double eps;          // added to the mean square
  bool constant;       // nothing writes the weight while kernels before this one may run
};

struct GemmDecodeTensors {
  void* y;               // [rows, cols], contiguous
  const void* x;         // [rows, inner], contiguous
  const void* weight;    // [inner, cols]
  const void* gamma;     // [inner] of the norm; null: x is not normalised
  const void* residual;  // [rows, cols], contiguous; null for none
};

// Whether the kernel supports the call on the current GPU and is faster than the norm, the product
// and the sum by themselves.
bool gemm_decode_takes(const GemmDecode& call, const GemmDecodeTensors& tensors);

// The sum is taken in float32, in an order that depends on the shape alone. y is rounded once, and
// so is RMS(x).
gpu::Status gemm_decode(const GemmDecode& call, const GemmDecodeTensors& tensors,
                        gpu::Stream stream);

}  // namespace fusedops::kernels
