// The norms of long rows, which lie in clusters (row_cluster.cuh): norm_cluster_kernel in shared
// memory, sum_cluster_kernel, for sums, in registers.
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/row_cluster.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels::norm_detail {

// The sum of f over the lanes, in two chains.
template <int V, class Of>
FUSEDOPS_DEVICE float sum_of_lanes(const float (&x)[V], const Of& f) {
  float even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < V; i += 2) {
    even += f(x[i]);
    odd += f(x[i + 1]);
  }
  return even + odd;
}

// The sum in a vector of each input that is still as in memory.
template <class F, int kInputs>
FUSEDOPS_DEVICE void add_up(float (&x)[kLanes<typename F::T>], const Packed (&of)[kInputs],
                            const Vector<typename F::T>& bias) {
  using T = typename F::T;
  constexpr int V = kLanes<T>;
  widen<T>(x, of[0]);
  float more[V];
  if constexpr (F::kAdds != Adds::nothing && F::kCentered) {
    widen(more, bias);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += more[i];
  }
  if constexpr (F::kAdds != Adds::nothing) {
    widen<T>(more, of[kInputs - 1]);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += more[i];
  }
}

// The sum at a column of the row that begins at `row`.
template <class F>
FUSEDOPS_DEVICE float load_edge(const Tensors<typename F::T>& t, std::int64_t row,
                                std::int64_t column) {
  float x = widen(t.x[row + column]);
  if (F::kAdds != Adds::nothing && F::kCentered) x += widen(t.bias[column]);
  if (F::kAdds != Adds::nothing) x += widen(t.residual[row + column]);
  return x;
}

// (x - mean) scale gamma + beta
template <class F, int V>
FUSEDOPS_DEVICE void normalize(float (&x)[V], float mean, float scale, const float (&gamma)[V],
                               const float (&beta)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if constexpr (F::kCentered) {
      x[i] = fmaf((x[i] - mean) * scale, gamma[i], beta[i]);
    } else {
      x[i] = x[i] * scale * gamma[i];
    }
  }
}

// The same for one element of the row that begins at `row`, whose sum is `x`.
template <class F>
FUSEDOPS_DEVICE void write_edge(const Tensors<typename F::T>& t, std::int64_t row,
                                std::int64_t column, float x, float mean, float scale) {
  using T = typename F::T;
  if (F::kAdds != Adds::nothing && t.sum) t.sum[row + column] = narrow<T>(x);
  float y = (x - mean) * scale * widen(t.gamma[column]);
  if constexpr (F::kCentered) y += widen(t.beta[column]);
  t.y[row + column] = narrow<T>(y);
}

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

template <class F, RowLayout kLayout>
__global__ void __launch_bounds__(row_cluster::kMostThreads,
                                  F::kAdds == Adds::nothing && kLayout == RowLayout::whole ? 3 : 2)
    norm_cluster_kernel(const Tensors<typename F::T> t, std::int64_t cols, const Constants<float> c,
                        unsigned held) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    constexpr int V = kLanes<T>;
    constexpr bool kAdds = F::kAdds != Adds::nothing, kBias = kAdds && F::kCentered;
    constexpr int kInputs = kAdds ? 2 : 1;
    // Vectors whose columns are on their way at once; measured (H100).
    constexpr int kBatch = kLayout == RowLayout::shifted ? 1 : kAdds ? 4 : 2;
    using Part = row_cluster::ClusterRow<kInputs>;
    __shared__ float of_warp[3][kMostWarps];
    __shared__ ExchangeOf<F> room;
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const RowSlice<T, kLayout> p(cluster::number(), cols);
    const Part part(places, held, static_cast<unsigned>(p.span.vectors));
    const Packed* in[kInputs];
    in[0] = as_packed(t.x + p.row + p.span.head);
    if constexpr (kAdds) in[1] = as_packed(t.residual + p.row + p.span.head);
    row_cluster::open(room);
    part.start(in);
    cluster::wait();
    const bool has_edge = !p.kWhole && part.own < static_cast<unsigned>(p.span.edges);
    const std::int64_t edge_column = p.span.template edge<V>(static_cast<int>(part.own));
    const float edge = has_edge ? load_edge<F>(t, p.row, edge_column) : 0;

    const auto place = [&](unsigned v) { return p.row + p.span.head + std::int64_t{v} * V; };

    Vector<T> gammas[kBatch], betas[kBatch], biases[kBatch];
    const auto ask_bias = [&](unsigned v, int j) {
      if constexpr (kBias) biases[j] = p.columns(t.bias, v);
    };
    // The sum in a later pass: it is held as float32, in the place of what was added.
    const auto get = [&](float (&x)[V], const typename Part::OfInputs& of, unsigned v, bool is_held,
                         int j) {
      if (kAdds && is_held) {
        memcpy(x, &of, sizeof(x));
      } else {
        ask_bias(v, j);
        add_up<F>(x, of, biases[j]);
      }
    };

    float total = 0, squares[1] = {0};
    PartialSum block;
    part.template first_pass<kBatch, kAdds>(
        in, ask_bias, [&](unsigned v, typename Part::OfInputs& of, bool is_held, int j) {
          float x[V];
          add_up<F>(x, of, biases[j]);
          if (kAdds && is_held) memcpy(&of, x, sizeof(x));
          if (kAdds && t.sum) store(t.sum + place(v), narrow<T>(x));
          if constexpr (F::kCentered) {
            total += sum_of_lanes(x, [](float each) { return each; });
          } else {
            squares[0] += sum_of_lanes(x, [](float each) { return each * each; });
          }
        });
    if constexpr (F::kCentered) {
      float sums[2] = {total + edge, static_cast<float>(part.count() * V + has_edge)};
      row_cluster::sum_of_block(sums, of_warp);
      block = {sums[0], sums[1]};
      const float mean = block.mean();
      part.template next_pass<kBatch>(
          in, [](unsigned, int) {},
          [&](unsigned v, const typename Part::OfInputs& of, bool is_held, int j) {
            float x[V];
            get(x, of, v, is_held, j);
            squares[0] +=
                sum_of_lanes(x, [=](float each) { return (each - mean) * (each - mean); });
          });
    }
    if (has_edge) squares[0] += (edge - block.mean()) * (edge - block.mean());
    row_cluster::sum_of_block(squares, of_warp + 2);
    const Scale<float> by = scale_of_blocks<F>(block, squares, c, room, [] {});
    part.template next_pass<kBatch>(
        in,
        [&](unsigned v, int j) {
          gammas[j] = p.columns(t.gamma, v);
          if constexpr (F::kCentered) betas[j] = p.columns(t.beta, v);
        },
        [&](unsigned v, const typename Part::OfInputs& of, bool is_held, int j) {
          float x[V], gamma[V], beta[V];
          widen(gamma, gammas[j]);
          if constexpr (F::kCentered) widen(beta, betas[j]);
          get(x, of, v, is_held, j);
          normalize<F>(x, by.mean, by.scale, gamma, beta);
          store(t.y + place(v), narrow<T>(x));
        });
    if (has_edge) write_edge<F>(t, p.row, edge_column, edge, by.mean, by.scale);
  }
}

// The same for sums, in registers.
template <class F, class S, RowLayout kLayout>
__global__ void __launch_bounds__(S::kMost, S::kBlocks)
    sum_cluster_kernel(const Tensors<typename F::T> t, int cols, const Constants<float> c) {
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
