// The norms of long rows, whose threads are those of a cluster (row_cluster.cuh).
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/row_cluster.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels::norm_detail {

// The part of a row that a block has, in a norm of centered rows: the sum and the number of its
// elements. Squares are taken relative to the mean of the block, and brought to that of the row
// once both are known: so the blocks exchange what they have once (Chan, Golub & LeVeque, "Updating
// formulae and a pairwise algorithm for computing sample variances", 1979).
struct PartialSum {
  float sum = 0, count = 0;

  FUSEDOPS_DEVICE float mean() const { return count > 0 ? sum / count : 0; }
};

// The mean of a row, of whose blocks each thread passes the one that exchange() gave it.
FUSEDOPS_DEVICE float mean_of_row(const PartialSum& one, const Constants<float>& c) {
  float row[1] = {one.sum};
  row_cluster::sum_of_blocks(row);
  return c.exact_mean(row[0]);
}

template <class F>
using ExchangeOf = row_cluster::BlockExchange<F::kCentered ? 3 : 1>;

// The scale of a row, from the block's sum and its squares relative to the block's mean.
template <class F, class Meanwhile>
FUSEDOPS_DEVICE Scale<float> scale_of_blocks(const PartialSum& block, float (&squares)[1],
                                             const Constants<float>& c, ExchangeOf<F>& room,
                                             const Meanwhile& meanwhile) {
  float mean = 0;
  if constexpr (F::kCentered) {
    float all[3] = {block.sum, block.count, squares[0]};
    row_cluster::exchange(all, room, meanwhile);
    const PartialSum one{all[0], all[1]};
    mean = mean_of_row(one, c);
    const float apart = one.mean() - mean;
    squares[0] = fmaf(one.count, apart * apart, all[2]);
  } else {
    row_cluster::exchange(squares, room, meanwhile);
  }
  row_cluster::sum_of_blocks(squares);
  return {mean, math::inverse_sqrt(fmaf(squares[0], c.inverse_n, c.eps))};
}

template <class F, class S, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(S::kMost, S::kBlocks)
    norm_cluster_kernel(const Tensors<typename F::T> t, int cols, const Constants<float> c) {
  if constexpr (cluster::kSupported) {
    __shared__ float of_warp[3][kMostWarps];
    __shared__ ExchangeOf<F> room;
    overlap::wait_in_turn();
    row_cluster::open(room);
    RowSlice<typename F::T, kLayout> p(cluster::number(), cols);
    p.share(cluster::size(), cluster::rank());
    Loads<F, S, kLayout> in;
    RegisterRow<F, S> part;
    Gains<F, S, kLayout> gains;
    in.start(t, p);
    in.wait();
    cluster::wait();
    take(part, in, t, p, t.sum);
    PartialSum block;
    if constexpr (F::kCentered) {
      float count = p.has_edge() ? 1 : 0;
#pragma unroll
      for (int k = 0; k < S::kVectors; ++k) count += p.has(k) ? p.V : 0;
      float sums[2] = {sum_of(part, p, [](float x) { return x; }), count};
      row_cluster::sum_of_block(sums, of_warp);
      block = {sums[0], sums[1]};
    }
    const float mean = block.mean();
    float squares[1] = {sum_of(part, p, [=](float x) { return (x - mean) * (x - mean); })};
    row_cluster::sum_of_block(squares, of_warp + 2);
    const auto ask = [&] { gains.start(t, p); };
    write(part, scale_of_blocks<F>(block, squares, c, room, ask), t, gains, p);
  }
}

}  // namespace fusedops::kernels::norm_detail
