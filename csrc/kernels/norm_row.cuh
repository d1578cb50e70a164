// Norms of rows that fit in the registers of the threads that share them: one read, one write.
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/reduce.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels::norm_detail {

// Asks for what is wanted first before the kernels before this one end: the rows of the blocks that
// start with it, and what all rows share. One thread of a row asks.
template <class F, Rows kRows>
FUSEDOPS_DEVICE void ask_early(const Tensors<typename F::T>& t, int cols,
                               const Place<typename F::T, kRows>& p) {
  constexpr unsigned kFirst = 1 << 17;  // threads; blocks of few registers have more
  if (p.thread != 0) return;
  if (blockIdx.x * (blockDim.x * blockDim.y) < kFirst) {
    const unsigned bytes = static_cast<unsigned>(p.span.vectors) * kVectorBytes;
    fetch::into_l2(p.of_row(t.x, 0), bytes);
    if (F::adds_residual(t)) fetch::into_l2(p.of_row(t.residual, 0), bytes);
  }
  if (blockIdx.x == 0 && threadIdx.y == 0) {
    const unsigned bytes = static_cast<unsigned>(cols) / p.V * kVectorBytes;
    fetch::into_l2(t.gamma, bytes);
    if constexpr (F::kCentered) fetch::into_l2(t.beta, bytes);
    if (F::adds_bias(t)) fetch::into_l2(t.bias, bytes);
  }
}

template <class S>
FUSEDOPS_DEVICE float sum_of_row(float value, float* shared) {
  const int threads = static_cast<int>(blockDim.x);
  if (S::kNarrow) return warp::reduce(value, threads, Sum{});
  value = reduce_block<Sum, S::kMost>(value, threads, shared);
  return S::kClusters ? reduce_cluster<Sum>(value, shared + kMostWarps) : value;
}

// Elements that are kept wide have the mean taken from them here, which is then 0.
template <class F, class S, Rows kRows>
FUSEDOPS_DEVICE Scale<float> scale_of(Part<F, S>& part, const Place<typename F::T, kRows>& p,
                                      const Constants<float>& c, float* shared,
                                      float* more_shared) {
  float mean = 0;
  if constexpr (F::kCentered) {
    mean = c.exact_mean(sum_of_row<S>(sum_of(part, p, [](float x) { return x; }), shared));
    part.end_pass(mean);
    if constexpr (!S::kPacked) {
#pragma unroll
      for (auto& vector : part.vector) {
#pragma unroll
        for (float& x : vector.lane) x -= mean;
      }
      part.edge -= mean;
      mean = 0;
    }
  }
  const float own = sum_of(part, p, [=](float x) { return (x - mean) * (x - mean); });
  const float squares = sum_of_row<S>(own, more_shared);
  part.end_pass(squares);
  return {mean, math::inverse_sqrt(fma(squares, c.inverse_n, c.eps))};
}

// A narrow row has blockDim.x threads, a power of two up to a warp's width, and a block blockDim.y
// of them; a wide one has a block, or a cluster of them.
template <class F, class S, Rows kRows>
__global__ void __launch_bounds__(S::kBlock, S::kBlocks)
    row_kernel(const Tensors<typename F::T> t, std::int64_t rows, int cols,
               const Constants<float> c) {
  using T = typename F::T;
  if (S::kClusters && cluster::size() == 1) return;  // so there is no code where there are none
  __shared__ float shared[2][kMostWarps + 1];
  std::int64_t row = blockIdx.x;
  if constexpr (S::kNarrow) row = row * blockDim.y + threadIdx.y;
  if constexpr (S::kClusters) row = blockIdx.x / cluster::size();
  // Past the end the last row once more, unwritten: all threads of a warp take part in reductions.
  const bool live = !S::kNarrow || row < rows;
  Place<T, kRows> p(live ? row : rows - 1, cols);
  if constexpr (S::kClusters) p.share(cluster::size(), cluster::rank());
  ask_early<F>(t, cols, p);
  overlap::wait_in_turn();
  Loads<F, S, kRows> in;
  Part<F, S> part;
  Gains<F, S, kRows> gains;
  in.start(t, p);
  gains.start(t, p);
  take(part, in, t, p, live ? t.sum : nullptr);
  const Scale<float> by = scale_of(part, p, c, shared[0], shared[1]);
  // What a block has for the others to read is there until they have.
  if constexpr (S::kClusters) cluster::arrive();
  if (live) write(part, by, t, gains, p);
  if constexpr (S::kClusters) cluster::wait();
}

}  // namespace fusedops::kernels::norm_detail
