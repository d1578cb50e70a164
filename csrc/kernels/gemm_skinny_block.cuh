// What the skinny GEMM kernels share. A cluster of blocks computes some columns of y; its blocks
// and their warps divide the sums among them. Signed bytes become 16-bit floating point numbers,
// exactly.
#pragma once

#include "kernels/activation.cuh"
#include "kernels/gemm_skinny.h"
#include "kernels/vector.cuh"
#include "platform/cluster.h"
#include "platform/fetch.h"
#include "platform/overlap.h"
#include "platform/tensor_core.h"
#include "platform/warp.h"

namespace fusedops::int8 {

// Two of the four bytes of a word, the first two or the last two, as a word with two elements of T.
template <class T>
FUSEDOPS_DEVICE unsigned pair(unsigned bytes, bool last) {
  unsigned out;
  if constexpr (std::is_same_v<T, half>) {
    // 0x6400 is 1024 as half, and its lowest bit counts 1. Adding 128 makes each byte unsigned.
    const unsigned bits = __byte_perm(bytes ^ 0x80808080u, 0x64646464u, last ? 0x4342 : 0x4140);
    half2 value;
    memcpy(&value, &bits, sizeof(bits));
    value = __hsub2(value, __float2half2_rn(1024.0f + 128.0f));
    memcpy(&out, &value, sizeof(out));
  } else {
    // 0x4300 is 128 and 0x4380 is 256 as bfloat16; their lowest bits count 1 and 2. The byte's
    // lower seven bits give 128 plus their value, and its sign gives 128 or 256.
    const unsigned bits = __byte_perm(bytes, 0x43434343u, last ? 0x4342 : 0x4140);
    const unsigned lower = bits & 0xff7fff7fu, sign = bits & 0xff80ff80u;
    gpu::bfloat162 one, other;
    memcpy(&one, &lower, sizeof(lower));
    memcpy(&other, &sign, sizeof(sign));
    one = __hsub2(one, other);
    memcpy(&out, &one, sizeof(out));
  }
  return out;
}

// Transposes a [4, 4] matrix of bytes, one row in each word.
FUSEDOPS_DEVICE void transpose(unsigned (&rows)[4]) {
  const unsigned a = __byte_perm(rows[0], rows[1], 0x5140);
  const unsigned b = __byte_perm(rows[2], rows[3], 0x5140);
  const unsigned c = __byte_perm(rows[0], rows[1], 0x7362);
  const unsigned d = __byte_perm(rows[2], rows[3], 0x7362);
  rows[0] = __byte_perm(a, b, 0x5410);
  rows[1] = __byte_perm(a, b, 0x7632);
  rows[2] = __byte_perm(c, d, 0x5410);
  rows[3] = __byte_perm(c, d, 0x7632);
}

}  // namespace fusedops::int8

namespace fusedops::kernels::gemm_skinny_detail {

constexpr int kWarps = 8;
constexpr int kBlock = kWarps * warp::kWidth;
constexpr int kQuad = 4;  // threads with the same g in platform/tensor_core.h
constexpr int kRows = 8;  // rows of x in a tile

struct ProblemShape {
  std::int64_t cols;    // of y
  std::int64_t all;     // columns of the weight
  std::int64_t second;  // columns of the weight between the two halves of a block's columns
  unsigned pitch;       // bytes from one column of the weight (or row) to the next
  int rows, inner;
  int group;  // rows of an int8 weight that share a scale
  bool gated;
  Activation activation;
};

// The warps' sums of x weight, by row of x and by place. A place is a column of the block's tiles.
template <int kAllRows, int kPlaces>
struct Partial {
  float of_warp[kWarps][kAllRows][kPlaces + 1];
};

// The block's part of the range that the cluster sums over, in multiples of `unit`: from `begin` up
// to `end`.
struct SumRange {
  int begin, end;

  FUSEDOPS_DEVICE SumRange(int all, int unit) {
    const int blocks = cluster::size(), units = (all + unit - 1) / unit;
    const int each = (units + blocks - 1) / blocks * unit;
    begin = min(static_cast<int>(cluster::rank()) * each, all);
    end = min(begin + each, all);
  }
};

// Adds up the warps' sums, in place of warp 0's.
template <int kAllRows, int kPlaces>
FUSEDOPS_DEVICE void add_up(Partial<kAllRows, kPlaces>& partial, int rows) {
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * kPlaces; i += kBlock) {
    const int row = i / kPlaces, place = i % kPlaces;
    float sum = partial.of_warp[0][row][place];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum += partial.of_warp[warp][row][place];
    partial.of_warp[0][row][place] = sum;
  }
}

// Adds up the sums of the cluster's blocks.
FUSEDOPS_DEVICE float total(const float& mine, unsigned blocks) {
  float sum = cluster::read(mine, 0);
#pragma unroll 1
  for (unsigned block = 1; block < blocks; ++block) sum += cluster::read(mine, block);
  return sum;
}

template <class T>
FUSEDOPS_DEVICE float activate(Activation activation, float v) {
  switch (activation) {
    case Activation::relu:
      return activation::Relu::value<T>(v);
    case Activation::gelu_tanh:
      return activation::GeluTanh::value<T>(v);
    case Activation::gelu_erf:
      return activation::GeluErf::value<T>(v);
    case Activation::silu:
      return activation::Silu::value<T>(v);
    default:
      return v;
  }
}

// Stores an element of y: f(sum + bias); in a gated call the product of its sum and f(gate).
template <class T>
FUSEDOPS_DEVICE void store(const ProblemShape& shape, T* y, const T* bias, int row,
                           std::int64_t column, float sum, float gate = 0) {
  if (column >= shape.cols) return;
  const auto with_bias = [&](float v, std::int64_t at) { return bias ? v + widen(bias[at]) : v; };
  const float v = with_bias(sum, column);
  const float f = shape.gated
                      ? v * activate<T>(shape.activation, with_bias(gate, column + shape.cols))
                      : activate<T>(shape.activation, v);
  y[row * shape.cols + column] = narrow<T>(f);
}

// Adds up the sums and writes y. The cluster computes `width` columns of y from `first` on. In a
// gated call the places after them hold the gates.
template <class T, int kAllRows, int kPlaces>
__device__ __noinline__ void finish(Partial<kAllRows, kPlaces>& partial, const ProblemShape& shape,
                                    T* y, const T* bias, std::int64_t first, int width) {
  const unsigned blocks = cluster::size();
  __syncthreads();
  add_up<kAllRows, kPlaces>(partial, shape.rows);
  cluster::sync();
#pragma unroll 1
  for (int i = cluster::rank() * kBlock + threadIdx.x; i < width * shape.rows;
       i += kBlock * blocks) {
    const int row = i / width, place = i % width;
    const auto sum = [&](int of) {
      return total(partial.of_warp[0][row][place + of * width], blocks);
    };
    store(shape, y, bias, row, first + place, sum(0), shape.gated ? sum(1) : 0);
  }
  if (blocks > 1) cluster::sync();  // the other blocks read this block's sums until here
}

}  // namespace fusedops::kernels::gemm_skinny_detail
