// The norms of long rows, which lie in clusters (row_cluster.cuh).
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
struct BlockSum {
  float sum, count;

  FUSEDOPS_DEVICE float mean() const { return count > 0 ? sum / count : 0; }
};

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
    __shared__ row_cluster::Exchange<F::kCentered ? 3 : 1> room;
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

    float mean = 0, total = 0, squares[1] = {0};
    const auto square = [&](float x) { return (x - mean) * (x - mean); };
    part.template first_pass<kBatch, kAdds>(
        in, ask_bias, [&](unsigned v, typename Part::OfInputs& of, bool is_held, int j) {
          float x[V];
          add_up<F>(x, of, biases[j]);
          if (kAdds && is_held) memcpy(&of, x, sizeof(x));
          if (kAdds && t.sum) store(t.sum + place(v), narrow<T>(x));
          if constexpr (F::kCentered) {
            total += sum_of_lanes(x, [](float each) { return each; });
          } else {
            squares[0] += sum_of_lanes(x, square);
          }
        });
    if constexpr (F::kCentered) {
      float sums[2] = {total + edge, static_cast<float>(part.count() * V + has_edge)};
      row_cluster::sum_of_block(sums, of_warp);
      const BlockSum block{sums[0], sums[1]};
      mean = block.mean();
      part.template next_pass<2>(
          in, [](unsigned, int) {},
          [&](unsigned v, const typename Part::OfInputs& of, bool is_held, int j) {
            float x[V];
            get(x, of, v, is_held, j);
            squares[0] += sum_of_lanes(x, square);
          });
      if (has_edge) squares[0] += square(edge);
      row_cluster::sum_of_block(squares, of_warp + 2);
      float all[3] = {block.sum, block.count, squares[0]};
      row_cluster::exchange(all, room);
      const BlockSum one{all[0], all[1]};
      float row[1] = {one.sum};
      row_cluster::sum_of_blocks(row);
      mean = c.exact_mean(row[0]);
      squares[0] = fmaf(one.count, square(one.mean()), all[2]);
    } else {
      if (has_edge) squares[0] += square(edge);
      row_cluster::sum_of_block(squares, of_warp);
      row_cluster::exchange(squares, room);
    }
    row_cluster::sum_of_blocks(squares);
    const float scale = math::inverse_sqrt(fmaf(squares[0], c.inverse_n, c.eps));
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
          normalize<F>(x, mean, scale, gamma, beta);
          store(t.y + place(v), narrow<T>(x));
        });
    if (has_edge) write_edge<F>(t, p.row, edge_column, edge, mean, scale);
  }
}

}  // namespace fusedops::kernels::norm_detail
