// The norms of rows that are too long for the registers of a cluster: they lie in its shared memory
// (row_cluster.cuh), and what has no room there is read twice.
#pragma once

#include "kernels/norm_cluster.cuh"
#include "kernels/norm_kernels.cuh"

namespace fusedops::kernels::norm_detail {

// Adds elements of a row to its moments.
template <class F, int kCount>
FUSEDOPS_DEVICE void gather(Moments<float>& moments, const float (&x)[kCount]) {
  float sum = 0, squares = 0;
  if constexpr (F::kCentered) {
#pragma unroll
    for (const float each : x) sum += each;
  }
  const float mean = sum / kCount;
#pragma unroll
  for (const float each : x) squares = fmaf(each - mean, each - mean, squares);
  if constexpr (F::kCentered) {
    moments.merge(kCount, mean, squares);
  } else {
    moments.squares += squares;
  }
}

// The scale of a row, of which each thread passes the moments of its part.
template <class F, class Row, class Exchange>
FUSEDOPS_DEVICE Scale<float> scale_of_threads(const Moments<float>& own, const Row& row,
                                              const Constants<float>& c, const Exchange& blocks) {
  __shared__ float of_warp[2][1][kMostWarps];
  float sum[1] = {own.count * own.mean}, squares[1] = {own.squares};
  if constexpr (F::kCentered) {
    row_cluster::sum_of_block(sum, of_warp[0]);
    const PartialSum block{sum[0], row.elements_of(cluster::rank())};
    const float apart = own.mean - block.mean();
    squares[0] = fmaf(own.count, apart * apart, squares[0]);
  }
  row_cluster::sum_of_block(squares, of_warp[1]);
  blocks.send({{squares[0], sum[0]}});
  blocks.receive(0);
  PartialSum of_lane;
  float its_squares = 0;
  blocks.each([&](const auto& sent, unsigned block) {
    its_squares = sent.of[0];
    of_lane = {sent.of[1], row.elements_of(block)};
  });
  return scale_of_row<F>(of_lane, its_squares, c);
}

template <class F, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(row_cluster::kMostThreads, 2)
    norm_longest_kernel(const Tensors<typename F::T> t, std::int64_t cols, const Constants<float> c,
                        unsigned held) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    constexpr bool kSums = F::kAdds != Adds::nothing;
    constexpr int V = kLanes<T>;
    using Row = SharedRow<T, kLayout, kSums ? 2 : 1>;
    using Of = typename Row::Part::OfInputs;
    using Exchange = row_cluster::ClusterExchange<2>;
    __shared__ typename Exchange::Room room;
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const Exchange blocks(room);
    row_cluster::open(blocks);
    const Row row(t.x, t.residual, cols, places, held);
    row.part.start(row.in);
    cluster::wait();
    Vector<T> biases[Row::Part::kBatch];
    const auto ask = [&](unsigned v, int j) {
      if (F::adds_bias(t)) biases[j] = row.p.columns(t.bias, v);
    };
    const auto sum_of_inputs = [&](float (&x)[V], const Of& of, int j) {
      widen<T>(x, of[0]);
      if (F::adds_bias(t)) add(x, biases[j]);
      if constexpr (kSums) {
        float more[V];
        widen<T>(more, of[1]);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] += more[i];
      }
    };
    Moments<float> own;
    const std::int64_t edge_at = row.p.row + row.edge_column;
    float edge[1] = {};
    if (row.has_edge) {
      edge[0] = widen(t.x[edge_at]);
      if (F::adds_bias(t)) edge[0] += widen(t.bias[row.edge_column]);
      if (F::adds_residual(t)) edge[0] += widen(t.residual[edge_at]);
      if (kSums && t.sum) t.sum[edge_at] = narrow<T>(edge[0]);
      gather<F>(own, edge);
    }
    row.part.first_pass(row.in, ask, [&](unsigned v, const Of& of, int j) {
      float x[V];
      sum_of_inputs(x, of, j);
      if (kSums && t.sum) store(t.sum + row.begin + std::int64_t{v} * V, narrow<T>(x));
      gather<F>(own, x);
    });
    const Scale<float> by = scale_of_threads<F>(own, row, c, blocks);
    Gain<T> gains[Row::Part::kBatch];
    const auto ask_gains = [&](unsigned v, int j) {
      ask(v, j);
      gains[j].gamma = row.p.columns(t.gamma, v);
      if constexpr (F::kCentered) gains[j].beta = row.p.columns(t.beta, v);
    };
    row.part.next_pass(row.in, ask_gains, [&](unsigned v, const Of& of, int j) {
      float x[V];
      sum_of_inputs(x, of, j);
      normalise<F>(x, by, gains[j]);
      store(t.y + row.begin + std::int64_t{v} * V, narrow<T>(x));
    });
    if (row.has_edge) {
      float x = (edge[0] - by.mean) * by.scale * widen(t.gamma[row.edge_column]);
      if constexpr (F::kCentered) x += widen(t.beta[row.edge_column]);
      t.y[edge_at] = narrow<T>(x);
    }
  }
}

}  // namespace fusedops::kernels::norm_detail
