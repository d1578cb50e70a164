// The bias of one thread's columns, fetched once and kept in registers.
#pragma once

#include "kernels/tiling.h"
#include "kernels/vector.cuh"

namespace fusedops {

// at % cols. A 64-bit remainder costs ten times a 32-bit one, and columns are seldom so many.
__device__ __forceinline__ std::int64_t column_of(std::int64_t at, std::int64_t cols) {
  constexpr std::int64_t kNarrow = std::int64_t{1} << 32;
  return at < kNarrow && cols < kNarrow
             ? static_cast<std::uint32_t>(at) % static_cast<std::uint32_t>(cols)
             : at % cols;
}

// Fills `out` with the bias of the `kLanes` columns of vector `p` of a period.
template <class T>
__device__ __forceinline__ void load_bias(Accumulator<T> (&out)[kLanes<T>],
                                          const T* __restrict__ bias, std::int64_t p,
                                          const Tiling& t) {
  constexpr int V = kLanes<T>;
  Vector<T> in;
  if (t.vector_bias) {
    in = load(bias + p * V);
  } else {
    std::int64_t column = column_of(p * V, t.cols);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      in.lane[i] = bias[column];
      column = column + 1 == t.cols ? 0 : column + 1;
    }
  }
  widen(out, in);
}

}  // namespace fusedops
