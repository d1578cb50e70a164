// A skinny GEMM: y = f(x weight + bias) for few rows of x. Its time is the time to read the weight.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

constexpr int kSkinnyRows = 16;  // of x, at most

struct GemmSkinny {
  DType dtype;            // dtype of x, bias, y, and of the weight unless that is int8
  Activation activation;  // f
  bool gated;             // y = v1 f(v2), where v1 and v2 are the halves of v = x weight + bias
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t cols;    // columns of y; a gated call's weight and bias have twice as many
  bool by_columns;      // the weight's columns are contiguous in memory, else its rows
  std::int64_t pitch;   // elements from one column of the weight (or row) to the next
  std::int64_t groups;  // groups of rows of an int8 weight, each with a scale; 0 for no int8
};

struct GemmSkinnyTensors {
  void* y;             // [rows, cols], contiguous
  const void* x;       // [rows, inner], contiguous
  const void* weight;  // [inner, cols]
  const void* bias;    // null for none
  const void* scales;  // float32 [groups]
};

// Whether a kernel supports the call on the current GPU and beats the BLAS library.
bool gemm_skinny_takes(const GemmSkinny& call, const GemmSkinnyTensors& tensors);

// The sum is taken in float32, in an order that depends on the shape and on the kind of GPU. y is
// rounded once.
gpu::Status gemm_skinny(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                        gpu::Stream stream);

}  // namespace fusedops::kernels
