// Rows of any length: their aligned vectors and edges, and vectors that start anywhere.
#pragma once

#include "kernels/vector.cuh"
#include "platform/warp.h"

namespace fusedops {

// How a row of a contiguous matrix splits into whole aligned vectors and single elements before and
// after them, its edges. The matrix starts on 16 bytes.
//
// The columns of vector v begin at V v + head. So a [cols] tensor is read there as the pair of its
// own vectors v and v + 1, shifted (joined). If head is not 0, the last vector of a row is left to
// the edges, so v + 1 always lies inside.
template <class Index>
struct SpanOf {
  int head;       // elements before the first vector, fewer than a vector
  int edges;      // elements outside the vectors, fewer than two vectors
  Index vectors;  // whole vectors

  // The column of edge e.
  template <int V>
  FUSEDOPS_DEVICE Index edge(int e) const {
    return e < head ? e : vectors * V + e;
  }
};
using Span = SpanOf<std::int64_t>;

// The span of a row whose first element has index `first` in memory that starts on 16 bytes.
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

// The span of a row of whole vectors.
template <int V>
FUSEDOPS_DEVICE Span whole_span(std::int64_t cols) {
  return {0, 0, cols / V};
}

// The vector that starts `bytes` bytes into a pair of vectors. `bytes` is less than a vector's
// size.
template <class T>
FUSEDOPS_DEVICE Vector<T> joined(const Vector<T>& low, const Vector<T>& high, unsigned bytes) {
  constexpr int kWords = kVectorBytes / static_cast<int>(sizeof(unsigned));
  alignas(kVectorBytes) unsigned words[2 * kWords];
  memcpy(words, &low, sizeof(low));
  memcpy(words + kWords, &high, sizeof(high));
#pragma unroll
  for (int i = 0; i < kWords + 2; ++i) words[i] = bytes & 8 ? words[i + 2] : words[i];
  if constexpr (sizeof(T) <= 4) {
#pragma unroll
    for (int i = 0; i < kWords + 1; ++i) words[i] = bytes & 4 ? words[i + 1] : words[i];
  }
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint64_t two = words[i] | static_cast<std::uint64_t>(words[i + 1]) << 32;
      words[i] = static_cast<unsigned>(two >> (bytes & 2) * 8);
    }
  }
  Vector<T> out;
  memcpy(&out, words, sizeof(out));
  return out;
}

// The vector at `data`. It loads both aligned vectors that contain it, or just one if it is
// aligned. Both loads start at once. The second vector is also a neighbouring thread's first, so it
// comes from the cache.
template <class T>
FUSEDOPS_DEVICE Vector<T> load_anywhere(const T* __restrict__ data) {
  const unsigned off = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(data)) % kVectorBytes;
  const T* low = data - off / sizeof(T);
  return joined(load(low), load(low + (off == 0 ? 0 : kLanes<T>)), off);
}

// The threads of a warp hold neighbouring vectors that may not start on 16 bytes. Each thread joins
// its vector with the one before to an aligned vector of memory. The first thread of a warp has no
// vector before, so warps overlap by one vector; and one more thread stores the end of a row.
constexpr int kStoringThreads = warp::kWidth - 1;  // of a warp

// The threads that a row of `vectors` vectors needs.
inline std::int64_t overlapping_threads(std::int64_t vectors) {
  return (vectors + 1 + kStoringThreads - 1) / kStoringThreads * warp::kWidth;
}

// The vector of the row's thread `x`; -1 if it has none.
FUSEDOPS_DEVICE std::int64_t overlapping_vector(std::int64_t x) {
  return x / warp::kWidth * kStoringThreads + x % warp::kWidth - 1;
}

// Stores the threads' vectors of a row of `cols` elements; the thread's begins at column c. `data`
// is the row, and all threads of a warp must pass the same one.
template <class T>
FUSEDOPS_DEVICE void store_overlapping(T* __restrict__ data, std::int64_t c, std::int64_t cols,
                                       const Vector<T>& vector) {
  constexpr int V = kLanes<T>;
  const unsigned off = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(data)) % kVectorBytes;
  const Vector<T> before = warp::shuffle_up(vector);
  if (threadIdx.x % warp::kWidth == 0) return;
  const Vector<T> whole = off == 0 ? vector : joined(before, vector, kVectorBytes - off);
  const std::int64_t first = c - static_cast<int>(off / sizeof(T));
  if (first >= 0 && first + V <= cols) {
    gpu::store_16(data + first, bits_of(whole));
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (first + i >= 0 && first + i < cols) data[first + i] = whole.lane[i];
  }
}

}  // namespace fusedops
