// y = f(x weight + bias) for few rows of x, where reading the weight is what takes time.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

constexpr int kSkinnyRows = 16;  // of x, at most

struct GemmSkinny {
  DType dtype;            // of x, bias, y, and of the weight but where it is int8
  Activation activation;  // f
  bool gated;             // the halves of v = x weight + bias give y = v1 f(v2)
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t cols;    // of y; weight and bias have twice as many where it is gated
  bool by_columns;      // neighbours in the weight's memory are of one column, else of one row
  std::int64_t pitch;   // elements of the weight from a column, or a row, to the next
  std::int64_t groups;  // of rows of an int8 weight that have a scale each; 0 for no int8
};

struct GemmSkinnyTensors {
  void* y;             // [rows, cols], contiguous
  const void* x;       // [rows, inner], contiguous
  const void* weight;  // [inner, cols]
  const void* bias;    // null for none
  const void* scales;  // float32 [groups]
};

// Whether there is a kernel for the call on the current GPU that beats the library's.
bool gemm_skinny_takes(const GemmSkinny& call, const GemmSkinnyTensors& tensors);

// The sum is taken in float32, in an order that depends on the shape and the kind of GPU, and y
// rounded once.
gpu::Status gemm_skinny(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                        gpu::Stream stream);

}  // namespace fusedops::kernels
