// Where one thread's part of a row is.
#pragma once

#include "kernels/norm_form.cuh"
#include "kernels/shifted.cuh"
#include "kernels/span.cuh"
#include "platform/fetch.h"

namespace fusedops::kernels::norm_detail {

// Where a thread's elements are: from vector `start` of the row on, vectors a row's threads apart.
template <class T, Rows kRows>
struct Place {
  static constexpr int V = kLanes<T>;
  static constexpr bool kWhole = kRows == Rows::whole;
  std::int64_t row;  // index of the row's first element
  Span span;
  std::int64_t start = 0;
  unsigned threads, thread;

  FUSEDOPS_DEVICE Place(std::int64_t index, std::int64_t cols)
      : row(index * cols),
        span(kWhole ? whole_span<V>(cols) : span_of<V>(index, cols)),
        threads(blockDim.x),
        thread(threadIdx.x) {}

  // So many blocks share the row.
  FUSEDOPS_DEVICE void share(unsigned blocks, unsigned block) {
    thread += block * threads;
    threads *= blocks;
  }

  FUSEDOPS_DEVICE bool has(int k) const { return thread + k * threads < span.vectors - start; }
  // Whether not to look at vector k. Where rows have vectors, a thread without one reads the last
  // of the row once more instead: without branches the compiler has all loads in flight together.
  FUSEDOPS_DEVICE bool skips(int k) const { return kRows == Rows::any && !has(k); }
  // The k-th vector of a [rows, cols] tensor, and of a [cols] tensor.
  template <class Element>
  FUSEDOPS_DEVICE Element* of_row(Element* data, int k) const {
    return ahead(data + (row + span.head), k);
  }
  FUSEDOPS_DEVICE Vector<T> of_columns(const T* data, int k) const {
    const T* at = ahead(data, k);
    if constexpr (kWhole) {
      const auto words = fetch::often(reinterpret_cast<const char*>(at));
      Vector<T> vector;
      memcpy(&vector, &words, sizeof(vector));
      return vector;
    } else {
      return joined(load_read_only(at), load_read_only(at + (span.head == 0 ? 0 : V)),
                    static_cast<unsigned>(span.head * sizeof(T)));
    }
  }
  FUSEDOPS_DEVICE bool has_edge() const {
    return !kWhole && start == 0 && thread < static_cast<unsigned>(span.edges);
  }
  FUSEDOPS_DEVICE std::int64_t edge_column() const {
    return span.template edge<V>(static_cast<int>(thread));
  }

 private:
  // 32-bit offsets from what is the same for the whole block: one register, not two.
  template <class Element>
  FUSEDOPS_DEVICE Element* ahead(Element* data, int k) const {
    using Byte = std::conditional_t<std::is_const_v<Element>, const char, char>;
    unsigned vector = thread + k * threads;
    if (kRows != Rows::any) vector = min(vector, static_cast<unsigned>(span.vectors) - 1);
    return reinterpret_cast<Element*>(reinterpret_cast<Byte*>(data + start * V) +
                                      vector * unsigned{kVectorBytes});
  }
};

}  // namespace fusedops::kernels::norm_detail
