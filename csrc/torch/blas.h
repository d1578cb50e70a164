// torch's matrix products, which call the GPU's BLAS library. Each flavour defines
//
//   Blas   matrix(tensor, layout), zeros(like, count, dtype), copy(to, from), mm(out, a, b),
//          addmm(out, row, a, b), has_addmm_activation(), addmm_activation(row, a, b, gelu).
//
// A product is summed in float32 (float64 for float64) and rounded once.
#pragma once

#include "torch/api.h"

namespace fusedops {

// The sizes and strides of a matrix over a contiguous tensor's elements.
struct Matrix {
  std::int64_t sizes[2];
  std::int64_t strides[2];
};

inline Matrix matrix_of(std::int64_t rows, std::int64_t cols) { return {{rows, cols}, {cols, 1}}; }

inline Matrix transposed(const Matrix& m) {
  return {{m.sizes[1], m.sizes[0]}, {m.strides[1], m.strides[0]}};
}

// A torch function that is declared weak. Throws where this torch does not have it.
template <class Function>
Function* available(Function* function) {
  if (!function) {
    throw Error("fusedops: this torch has no products of matrices for the GPU to be called");
  }
  return function;
}

}  // namespace fusedops

#if defined(TORCH_TARGET_VERSION)
#include "torch/stable/blas.h"
#else
#include "torch/aten/blas.h"
#endif
