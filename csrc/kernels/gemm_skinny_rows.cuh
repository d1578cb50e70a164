// The skinny GEMM kernel for an int8 weight whose rows are contiguous.
//
// It works like gemm_skinny_columns.cuh, but a thread's bytes are neighbours in one row of the
// weight, so they belong to different columns. The warp's multiply_add i takes byte i of each
// thread. The elements that platform/tensor_core.h numbers k = 2t, 2t+1, 2t+8, 2t+9 are rows 8t ..
// 8t+3, or 8t+4 .. 8t+7.
#pragma once

#include "kernels/gemm_skinny_block.cuh"

namespace fusedops::kernels::gemm_skinny_detail {

template <class T_>
struct ByRows {
  using T = T_;
  static constexpr int kWide = 8, kRowTiles = 2;  // neighbours of a thread; tiles of rows of x
  static constexpr int kWords = kWide / 4;        // words that hold the neighbours
  static constexpr int kPlaces = kWide * 8;       // columns of the weight
  static constexpr int kChunk = 32;               // rows of the weight
};

template <class L>
struct RowChunk {
  fetch::Words<L::kWords> weight[8];  // rows 8t .. 8t+7
  fetch::Words<4> x[L::kRowTiles];
};

template <class L>
using RowSums = float[L::kWide][4];

template <class L>
struct RowSource {
  const char* weight;
  const char* rows[L::kRowTiles];
  bool in_x[L::kRowTiles], in_weight;
  int left;  // rows of the block's part of the weight, from the thread's first row on
  unsigned pitch;

  FUSEDOPS_DEVICE RowSource(const ProblemShape& shape, const void* x, const void* weight_,
                            std::int64_t first, const SumRange& part)
      : pitch(shape.pitch) {
    const int lane = threadIdx.x % warp::kWidth, g = lane / kQuad;
    const int at = part.begin + threadIdx.x / warp::kWidth * L::kChunk + lane % kQuad * 8;
    const std::int64_t column = first + g / 4 * shape.second + g % 4 * L::kWide;
    left = part.end - at;
    in_weight = column < shape.all;
    weight = static_cast<const char*>(weight_) + at * std::int64_t{pitch} + column;
    fetch::make_opaque(weight);
#pragma unroll
    for (int i = 0; i < L::kRowTiles; ++i) {
      const int row = i * kRows + g;
      in_x[i] = row < shape.rows;
      rows[i] = static_cast<const char*>(x) + (row * std::int64_t{shape.inner} + at) * 2;
      fetch::make_opaque(rows[i]);
    }
  }

  // Prefetches the weight's bytes that `read` reads first.
  FUSEDOPS_DEVICE void ask_for() const {
    if (!in_weight || left <= 0) return;
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) fetch::into_l2(weight + std::uint64_t{pitch} * i);
  }

  // Reads the chunk that is `ahead` chunks on, with zeros past the end. `inner` is a multiple of 8,
  // so a thread has all its rows or none.
  FUSEDOPS_DEVICE void read(RowChunk<L>& to, int ahead) const {
    const bool valid = ahead * L::kChunk < left;
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      to.weight[i] =
          valid && in_weight
              ? fetch::once<L::kWords>(weight + std::uint64_t{pitch} * (ahead * L::kChunk + i))
              : fetch::Words<L::kWords>{};
    }
#pragma unroll
    for (int i = 0; i < L::kRowTiles; ++i) {
      to.x[i] =
          valid && in_x[i] ? fetch::plain<4>(rows[i] + ahead * L::kChunk * 2) : fetch::Words<4>{};
    }
  }

  FUSEDOPS_DEVICE void go_on(int chunks) {
    left -= chunks * L::kChunk;
    weight += std::uint64_t{pitch} * (chunks * L::kChunk);
#pragma unroll
    for (int i = 0; i < L::kRowTiles; ++i) rows[i] += chunks * L::kChunk * 2;
  }
};

// sums += the product of four rows of the weight, from `half` on, with a thread's elements of x.
template <class L>
FUSEDOPS_DEVICE void multiply_add(RowSums<L>& sums, const RowChunk<L>& chunk, int half) {
  using T = typename L::T;
  const fetch::Words<4>&low = chunk.x[0], &high = chunk.x[1];
  const unsigned a[4] = {low.word[half / 2], high.word[half / 2], low.word[half / 2 + 1],
                         high.word[half / 2 + 1]};
#pragma unroll
  for (int word = 0; word < L::kWords; ++word) {
    unsigned r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = chunk.weight[half + i].word[word];
    int8::transpose(r);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned b[2] = {int8::pair<T>(r[i], false), int8::pair<T>(r[i], true)};
      tensor_core::multiply_add<T>(sums[word * 4 + i], a, b);
    }
  }
}

template <class L>
__device__ __forceinline__ void run_by_rows(ProblemShape shape, typename L::T* y,
                                            const typename L::T* x, const void* weight,
                                            const typename L::T* bias, const float* scales) {
  using T = typename L::T;
  constexpr int kAllRows = L::kRowTiles * kRows;
  __shared__ Partial<kAllRows, L::kPlaces> partial;
  const int warp = threadIdx.x / warp::kWidth, lane = threadIdx.x % warp::kWidth;
  // The columns of y that a cluster computes.
  const int width = shape.gated ? L::kPlaces / 2 : L::kPlaces;
  const std::int64_t first = cluster::number() * std::int64_t{width};
  const SumRange part(shape.inner, L::kChunk);
  RowSource<L> source(shape, x, weight, first, part);
  source.ask_for();
  overlap::wait();

  RowSums<L> sums = {};
  int at = part.begin + warp * L::kChunk;
  const auto add = [&](const RowChunk<L>& chunk, int from) {
    if (from >= part.end) return;
    RowSums<L> products = {};
    multiply_add<L>(products, chunk, 0);
    multiply_add<L>(products, chunk, 4);
    const float scale = scales[from / shape.group];
#pragma unroll
    for (int i = 0; i < L::kWide * 4; ++i) {
      sums[i / 4][i % 4] = fmaf(scale, products[i / 4][i % 4], sums[i / 4][i % 4]);
    }
  };
  RowChunk<L> now, next;
  source.read(now, 0);
  for (; at < part.end; at += 2 * kWarps * L::kChunk) {
    source.read(next, kWarps);
    add(now, at);
    source.read(now, 2 * kWarps);
    add(next, at + kWarps * L::kChunk);
    source.go_on(2 * kWarps);
  }

#pragma unroll
  for (int i = 0; i < L::kWide * 4; ++i) {
    const int row = lane / kQuad + i % 4 / 2 * 8;
    const int place = (lane % kQuad * 2 + i % 2) * L::kWide + i / 4;
    partial.of_warp[warp][row][place] = sums[i / 4][i % 4];
  }
  finish<T, kAllRows, L::kPlaces>(partial, shape, y, bias, first, width);
}

template <class L>
__global__ void __launch_bounds__(kBlock)
    by_rows(ProblemShape shape, typename L::T* y, const typename L::T* x, const void* weight,
            const typename L::T* bias, const float* scales) {
  if constexpr (tensor_core::kSupported) {
    run_by_rows<L>(shape, y, x, weight, bias, scales);
  } else {
    gpu::trap();  // gemm_skinny_takes returns false here
  }
}

}  // namespace fusedops::kernels::gemm_skinny_detail
