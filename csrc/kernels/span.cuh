// Rows of any length as aligned vectors: a row of an odd number of elements starts off 16 bytes.
#pragma once

#include "kernels/vector.cuh"

namespace fusedops {

// How a row of a contiguous matrix that starts on 16 bytes splits into whole vectors of the matrix
// and single elements before and after them, its edges.
//
// The columns of vector v begin at V v + head, so a tensor [cols] is read there as a shifted pair
// of its own vectors, v and v + 1 (shifted.cuh). Where head is not 0 the last vector of a row is
// left to the edges, and v + 1 then always lies inside.
template <class Index>
struct SpanOf {
  int head;       // elements before the first vector, fewer than a vector
  int edges;      // elements outside the vectors, fewer than two vectors
  Index vectors;  // whole ones

  // The column of edge e.
  template <int V>
  FUSEDOPS_DEVICE Index edge(int e) const {
    return e < head ? e : vectors * V + e;
  }
};
using Span = SpanOf<std::int64_t>;

// Of a row whose first element is number `first` of memory that starts on 16 bytes.
template <int V, class Index>
FUSEDOPS_DEVICE SpanOf<Index> span_at(std::int64_t first, Index cols) {
  const int head = static_cast<int>(-first & (V - 1));
  Index vectors = cols / V - (head != 0);
  if (vectors < 0) vectors = 0;
  return {head, static_cast<int>(cols - vectors * V), vectors};
}

template <int V>
FUSEDOPS_DEVICE Span span_of(std::int64_t row, std::int64_t cols) {
  return span_at<V>(row * cols, cols);
}

// The same for rows of whole vectors.
template <int V>
FUSEDOPS_DEVICE Span whole_span(std::int64_t cols) {
  return {0, 0, cols / V};
}

}  // namespace fusedops
