// What an Api must have for products of matrices, beside what api.h lists: matrix(tensor, layout),
// zeros(like, count, dtype), copy(to, from), mm(out, a, b), addmm(out, row, a, b),
// addmm_activation(row, a, b, gelu), which has_addmm_activation() says is there. Each product is
// summed in float32 (float64 for float64) and rounded once.
#pragma once

#include <cstdint>

#include "ops/error.h"

namespace fusedops {

// A function of torch's that is declared weak, or an error where this torch has none.
template <class Function>
Function* there(Function* function) {
  if (!function) {
    throw Error("fusedops: this torch has no products of matrices for the GPU to be called");
  }
  return function;
}

// Two dimensions of a contiguous tensor's elements.
struct Matrix {
  std::int64_t sizes[2];
  std::int64_t strides[2];
};

inline Matrix matrix_of(std::int64_t rows, std::int64_t cols) { return {{rows, cols}, {cols, 1}}; }

inline Matrix transposed(const Matrix& m) {
  return {{m.sizes[1], m.sizes[0]}, {m.strides[1], m.strides[0]}};
}

}  // namespace fusedops
