// The skinny GEMM kernel for a weight whose columns are contiguous.
//
// Each warp takes every eighth chunk of the block's part of the columns, from memory straight into
// the operands of the tensor cores. A sum may be taken in any order, so a thread's 16 bytes,
// neighbours in one column, serve as they are: the elements that platform/tensor_core.h numbers k =
// 2t, 2t+1, 2t+8, 2t+9 are 4 neighbours, of the weight and of x alike.
#pragma once

#include "kernels/gemm_skinny_block.cuh"

namespace fusedops::kernels::gemm_skinny_detail {

constexpr int kGroup = 8;  // columns of the weight; two groups are the block's tile

// A layout: how many times 16 bytes of each column a thread takes in a chunk, and tiles of rows.
template <class T_, bool kInt8_, int kSteps_, int kRowTiles_>
struct ByColumns {
  using T = T_;
  static constexpr bool kInt8 = kInt8_;
  static constexpr int kSteps = kSteps_, kRowTiles = kRowTiles_;
  static constexpr int kResident = kSteps == 1 ? 4 : 2;  // blocks of a multiprocessor
  static constexpr int kGroups = 2, kPlaces = kGroups * kGroup;
  static constexpr int kElements = kInt8 ? 16 : 8;  // elements in 16 bytes of a column
  static constexpr int kXWords = kElements / 8;     // words of 16 bytes of x that go with them
  static constexpr int kChunk = kSteps * kQuad;     // words of 16 bytes, of a column
};

template <class L>
struct Chunk {
  fetch::Words<4> weight[L::kSteps][L::kGroups];  // column g of each group
  fetch::Words<4> x[L::kSteps][L::kRowTiles][L::kXWords];
};

template <class L>
using Sums = float[L::kRowTiles][4];

// A thread's position in its operands. It moves by chunks.
template <class L>
struct Source {
  static constexpr int kXBytes = 16 * L::kXWords;  // bytes of x that go with 16 bytes of a column

  const char* columns[L::kGroups];
  const char* rows[L::kRowTiles];
  bool in_x[L::kRowTiles];
  int left;  // words of 16 bytes of a column that are left from here on

  FUSEDOPS_DEVICE Source(const ProblemShape& shape, const void* x, const void* weight,
                         std::int64_t first, const SumRange& part) {
    const int lane = threadIdx.x % warp::kWidth, g = lane / kQuad;
    const int at = part.begin + threadIdx.x / warp::kWidth * L::kChunk + lane % kQuad;
    left = part.end - at;
#pragma unroll
    for (int i = 0; i < L::kGroups; ++i) {
      const std::int64_t column = first + i * shape.second + g;
      // A missing column is read as the last one; its result is dropped.
      columns[i] = static_cast<const char*>(weight) + at * std::int64_t{16} +
                   (column < shape.all ? column : shape.all - 1) * std::int64_t{shape.pitch};
      fetch::make_opaque(columns[i]);
    }
#pragma unroll
    for (int i = 0; i < L::kRowTiles; ++i) {
      const int row = i * kRows + g;
      in_x[i] = row < shape.rows;
      rows[i] = static_cast<const char*>(x) + at * std::int64_t{kXBytes} +
                row * std::int64_t{shape.inner} * 2;
      fetch::make_opaque(rows[i]);
    }
  }

  // Prefetches the weight's bytes that `read` reads first.
  FUSEDOPS_DEVICE void ask_for() const {
#pragma unroll
    for (int step = 0; step < L::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < L::kGroups; ++i) {
        if (step * kQuad < left) fetch::into_l2(columns[i] + step * kQuad * 16);
      }
    }
  }

  // Reads the chunk that is `ahead` chunks on, with zeros past the end.
  FUSEDOPS_DEVICE void read(Chunk<L>& to, int ahead) const {
#pragma unroll
    for (int step = 0; step < L::kSteps; ++step) {
      const int at = ahead * L::kChunk + step * kQuad;
#pragma unroll
      for (int i = 0; i < L::kGroups; ++i) {
        to.weight[step][i] = at < left ? fetch::once<4>(columns[i] + at * 16) : fetch::Words<4>{};
      }
#pragma unroll
      for (int i = 0; i < L::kRowTiles * L::kXWords; ++i) {
        const int row = i / L::kXWords, word = i % L::kXWords;
        to.x[step][row][word] = in_x[row] && at < left
                                    ? fetch::plain<4>(rows[row] + at * kXBytes + word * 16)
                                    : fetch::Words<4>{};
      }
    }
  }

  FUSEDOPS_DEVICE void go_on(int chunks) {
    left -= chunks * L::kChunk;
#pragma unroll
    for (int i = 0; i < L::kGroups; ++i) columns[i] += chunks * L::kChunk * 16;
#pragma unroll
    for (int i = 0; i < L::kRowTiles; ++i) rows[i] += chunks * L::kChunk * kXBytes;
  }
};

// c += the product of 16 bytes of columns g and g + 8 with as many elements of row g.
template <class L>
FUSEDOPS_DEVICE void multiply_add(float (&c)[4], const fetch::Words<4>& low,
                                  const fetch::Words<4>& high,
                                  const fetch::Words<4> (&x)[L::kXWords]) {
  using T = typename L::T;
#pragma unroll
  for (int i = 0; i < L::kXWords * 2; ++i) {
    const unsigned b[2] = {x[i / 2].word[i % 2 * 2], x[i / 2].word[i % 2 * 2 + 1]};
    if constexpr (L::kInt8) {
      const unsigned a[4] = {int8::pair<T>(low.word[i], false), int8::pair<T>(high.word[i], false),
                             int8::pair<T>(low.word[i], true), int8::pair<T>(high.word[i], true)};
      tensor_core::multiply_add<T>(c, a, b);
    } else {
      const unsigned a[4] = {low.word[i * 2], high.word[i * 2], low.word[i * 2 + 1],
                             high.word[i * 2 + 1]};
      tensor_core::multiply_add<T>(c, a, b);
    }
  }
}

template <class L>
FUSEDOPS_DEVICE void multiply_add(Sums<L>& sums, const Chunk<L>& chunk, const float* scales) {
#pragma unroll
  for (int step = 0; step < L::kSteps; ++step) {
    const fetch::Words<4>&low = chunk.weight[step][0], &high = chunk.weight[step][1];
#pragma unroll
    for (int row = 0; row < L::kRowTiles; ++row) {
      if constexpr (L::kInt8) {
        float c[4] = {};
        multiply_add<L>(c, low, high, chunk.x[step][row]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[row][i] = fmaf(scales[step], c[i], sums[row][i]);
      } else {
        multiply_add<L>(sums[row], low, high, chunk.x[step][row]);
      }
    }
  }
}

template <class L>
__device__ __forceinline__ void run_by_columns(ProblemShape shape, typename L::T* y,
                                               const typename L::T* x, const void* weight,
                                               const typename L::T* bias, const float* scales) {
  using T = typename L::T;
  __shared__ Partial<L::kRowTiles * kRows, L::kPlaces> partial;
  const int warp = threadIdx.x / warp::kWidth, lane = threadIdx.x % warp::kWidth;
  // The columns of y that a cluster computes.
  const int width = shape.gated ? L::kPlaces / 2 : L::kPlaces;
  const std::int64_t first = cluster::number() * std::int64_t{width};
  const SumRange part(shape.inner / L::kElements, L::kChunk);
  Source<L> source(shape, x, weight, first, part);
  source.ask_for();
  overlap::wait();

  Sums<L> sums = {};
  const auto add = [&](const Chunk<L>& chunk, int ahead) {
    float scale[L::kSteps];
    if constexpr (L::kInt8) {
#pragma unroll
      for (int step = 0; step < L::kSteps; ++step) {
        const int at = min(part.end - source.left + ahead * L::kChunk + step * kQuad,
                           shape.inner / L::kElements - 1);
        scale[step] = scales[at * L::kElements / shape.group];
      }
    }
    multiply_add<L>(sums, chunk, scale);
  };
  Chunk<L> now, next;
  source.read(now, 0);
  for (int left = source.left + lane % kQuad; left > 0; left -= 2 * kWarps * L::kChunk) {
    source.read(next, kWarps);
    add(now, 0);
    source.read(now, 2 * kWarps);
    add(next, kWarps);
    source.go_on(2 * kWarps);
  }

#pragma unroll
  for (int i = 0; i < L::kRowTiles * 4; ++i) {
    const int row = i / 4, word = i % 4;
    partial.of_warp[warp][row * kRows + lane % kQuad * 2 + word % 2]
                   [word / 2 * kGroup + lane / kQuad] = sums[row][word];
  }
  finish<T, L::kRowTiles * kRows, L::kPlaces>(partial, shape, y, bias, first, width);
}

template <class L>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(kBlock, L::kResident)
    by_columns(ProblemShape shape, typename L::T* y, const typename L::T* x, const void* weight,
               const typename L::T* bias, const float* scales) {
  if constexpr (tensor_core::kSupported) {
    run_by_columns<L>(shape, y, x, weight, bias, scales);
  } else {
    gpu::trap();  // gemm_skinny_takes returns false here
  }
}

}  // namespace fusedops::kernels::gemm_skinny_detail
