// The gradients of a norm with respect to the rows, as in norm_backward.cu. Each row's mean and
// deviation are stored too, for those of gamma and beta.
#pragma once

#include "kernels/norm.h"
#include "kernels/norm_kernels.cuh"
#include "kernels/norm_launch.cuh"

namespace fusedops::kernels::norm_detail {

using Backward = Schedule<1, 1024, 0>;

// The gradient with respect to the rows. A row that fits into its threads' registers is read once;
// a longer row is read three times: for its mean and deviation, for the sums, and for the result. A
// thread holds its part of two rows, x and its gradient.
template <class F>
struct BackwardRow {
  using T = typename F::T;
  using A = Accumulator<T>;
  static constexpr int V = kLanes<T>;
  RegisterRow<F, Backward> x, grad;

  FUSEDOPS_DEVICE static void load(RegisterRow<F, Backward>& part, const T* data,
                                   const RowSlice<T, RowLayout::any>& p) {
    Tensors<T> t{};
    t.x = data;
    Loads<F, Backward, RowLayout::any> in;
    in.start(t, p);
    take(part, in, t, p, static_cast<T*>(nullptr));
  }

  // Turns x into the normalised row n, and grad into g = grad gamma.
  FUSEDOPS_DEVICE void weigh(const T* gamma, const Scale<A>& by,
                             const RowSlice<T, RowLayout::any>& p) {
#pragma unroll
    for (int k = 0; k < Backward::kVectors; ++k) {
      if (p.skips(k)) continue;
      A weight[V];
      widen(weight, p.of_columns(gamma, k));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        x.vector[k].lane[i] = (x.vector[k].lane[i] - by.mean) * by.scale;
        grad.vector[k].lane[i] *= weight[i];
      }
    }
    if (p.has_edge()) {
      x.edge = (x.edge - by.mean) * by.scale;
      grad.edge *= widen(gamma[p.edge_column()]);
    }
  }

  // The sums of g and of g n over the thread's elements.
  FUSEDOPS_DEVICE Two<A> sums(const RowSlice<T, RowLayout::any>& p) const {
    Two<A> sum{};
    if (p.has_edge()) sum = {grad.edge, grad.edge * x.edge};
#pragma unroll
    for (int k = 0; k < Backward::kVectors; ++k) {
      if (p.skips(k)) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A g = grad.vector[k].lane[i];
        sum = sum + Two<A>{g, g * x.vector[k].lane[i]};
      }
    }
    return sum;
  }

  FUSEDOPS_DEVICE void write(const NormBackwardTensors& t, const Two<A>& means, A scale,
                             const RowSlice<T, RowLayout::any>& p) const {
    const auto of = [&](A g, A n) {
      return scale * (g - (F::kCentered ? means.first : 0) - n * means.second);
    };
    const auto* more = static_cast<const T*>(t.grad_sum);
    auto* out = static_cast<T*>(t.grad_x);
#pragma unroll
    for (int k = 0; k < Backward::kVectors; ++k) {
      if (p.skips(k)) continue;
      A result[V], add[V] = {};
      if (more) widen(add, fusedops::load(p.of_row(more, k)));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        result[i] = of(grad.vector[k].lane[i], x.vector[k].lane[i]) + add[i];
      }
      store(p.of_row(out, k), narrow<T>(result));
    }
    if (p.has_edge()) {
      const std::int64_t at = p.row + p.edge_column();
      out[at] = narrow<T>(of(grad.edge, x.edge) + (more ? widen(more[at]) : 0));
    }
  }
};

// A block has blockDim.y rows of blockDim.x threads, like general_kernel. It stores each row's mean
// and deviation in `scales`.
template <class F>
__global__ void __launch_bounds__(Backward::kMost)
    backward_row_kernel(const NormBackwardTensors t,
                        Scale<Accumulator<typename F::T>>* __restrict__ scales, std::int64_t rows,
                        std::int64_t cols, const Constants<Accumulator<typename F::T>> c) {
  using T = typename F::T;
  using A = Accumulator<T>;
  __shared__ A shared[2][kMostWarps];
  __shared__ Two<A> both[kMostWarps];
  overlap::wait();
  const auto* x = static_cast<const T*>(t.x);
  const auto* grad = static_cast<const T*>(t.grad);
  const auto* gamma = static_cast<const T*>(t.gamma);
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    // Threads past the last row compute that row again and do not write: a reduction needs all
    // threads of a warp.
    const std::int64_t row = first + threadIdx.y;
    const bool live = row < rows;
    RowSlice<T, RowLayout::any> p(live ? row : rows - 1, cols);
    const std::int64_t step = static_cast<std::int64_t>(Backward::kVectors) * blockDim.x;
    const bool at_once = p.span.vectors <= step;
    BackwardRow<F> part;
    Moments<A> own;
    for (; p.start == 0 || p.start < p.span.vectors; p.start += step) {
      part.load(part.x, x, p);
      gather(own, part.x, p);
    }
    const Scale<A> by = scale_of<F>(own, c, shared[0], shared[1]);
    if (live && threadIdx.x == 0) scales[row] = by;
    Two<A> sum{};
    for (p.start = 0; p.start == 0 || p.start < p.span.vectors; p.start += step) {
      if (!at_once) part.load(part.x, x, p);
      part.load(part.grad, grad, p);
      part.weigh(gamma, by, p);
      sum = sum + part.sums(p);
    }
    sum = reduce_row<Sum>(sum, static_cast<int>(blockDim.x), both);
    const Two<A> means{sum.first * c.inverse_n, sum.second * c.inverse_n};
    for (p.start = 0; p.start == 0 || p.start < p.span.vectors; p.start += step) {
      if (!at_once) {
        part.load(part.x, x, p);
        part.load(part.grad, grad, p);
        part.weigh(gamma, by, p);
      }
      if (live) part.write(t, means, by.scale, p);
    }
  }
}

// Adds to the sums of (x - mean)^2, of g (x - mean), of g if there are three, and of x - mean if
// there are four, where g is grad gamma.
template <int kSums, int V>
FUSEDOPS_DEVICE void add_products(float (&sums)[kSums], float (&x)[V], float (&g)[V],
                                  const float (&gamma)[V], float mean) {
  float squares = 0, product = 0, plain = 0, apart = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] -= mean;
    g[i] *= gamma[i];
    squares = fmaf(x[i], x[i], squares);
    product = fmaf(g[i], x[i], product);
    if constexpr (kSums > 2) plain += g[i];
    if constexpr (kSums > 3) apart += x[i];
  }
  sums[0] += squares;
  sums[1] += product;
  if constexpr (kSums > 2) sums[2] += plain;
  if constexpr (kSums > 3) sums[3] += apart;
}

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

// The sums of a row, of whose blocks each passes its own: of squares, of g (x - mean) and, in a
// centered norm, of g, relative to the mean of the block, of whose x `sum` is the sum. Returns the
// row's mean.
template <class F, int kSums, class Row, class Exchange>
FUSEDOPS_DEVICE float sum_of_row(float (&sums)[kSums], float sum, const Row& row,
                                 const Constants<float>& c, const Exchange& blocks) {
  if constexpr (F::kCentered) {
    blocks.send({{sums[0], sums[1], sums[2], sum}});
    typename Exchange::Sent one{};
    blocks.receive(0);
    PartialSum of_lane{};
    blocks.each([&](const auto& sent, unsigned block) {
      one = sent;
      of_lane = {sent.of[3], row.elements_of(block)};
    });
    const float mean = mean_of_row(of_lane, c), apart = of_lane.mean() - mean;
    sums[0] = row_cluster::sum_of_blocks(fmaf(of_lane.count, apart * apart, one.of[0]));
    sums[1] = row_cluster::sum_of_blocks(fmaf(apart, one.of[2], one.of[1]));
    sums[2] = row_cluster::sum_of_blocks(one.of[2]);
    return mean;
  } else {
    blocks.send({{sums[0], sums[1]}});
    blocks.receive(0);
    blocks.sum(sums);
    return 0;
  }
}

// The gradient of an element x: scale g, where g = grad gamma, and what the row's means add to it.
struct Slope {
  float mean, scale, factor, shift = 0;

  template <int kSums>
  FUSEDOPS_DEVICE Slope(float mean, const float (&sums)[kSums], const Constants<float>& c)
      : mean(mean), scale(math::inverse_sqrt(fmaf(sums[0], c.inverse_n, c.eps))) {
    factor = -scale * (scale * (sums[1] * scale * c.inverse_n));
    if constexpr (kSums > 2) shift = -scale * (sums[2] * c.inverse_n);
  }
  FUSEDOPS_DEVICE float rest(float centered_x) const { return fmaf(centered_x, factor, shift); }
  FUSEDOPS_DEVICE float of(float g, float x) const { return fmaf(g, scale, rest(x - mean)); }
};

// The same for long rows, in clusters (row_cluster.cuh). Sums are taken relative to the mean of the
// block (PartialSum). Those of g (x - mean) become those of g n once the deviation is known.
template <class F, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(row_cluster::kMostThreads, 2)
    backward_cluster_kernel(const NormBackwardTensors t, Scale<float>* __restrict__ scales,
                            std::int64_t cols, const Constants<float> c, unsigned held) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    using Part = row_cluster::ClusterRow<2>;
    constexpr int V = kLanes<T>, kSums = F::kCentered ? 3 : 2;  // of squares, g n, g
    __shared__ float of_warp[kSums + 1][kMostWarps];
    using Exchange = row_cluster::ClusterExchange<F::kCentered ? 4 : 2>;
    __shared__ typename Exchange::Room room;
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const auto* const x_data = static_cast<const T*>(t.x);
    const auto* const grad_data = static_cast<const T*>(t.grad);
    const auto* const gamma_data = static_cast<const T*>(t.gamma);
    const auto* const more_data = static_cast<const T*>(t.grad_sum);
    auto* const out = static_cast<T*>(t.grad_x);
    const SharedRow<T, kLayout, 2> row(cluster::number(), x_data, grad_data, cols, places, held);
    const auto& part = row.part;
    const Exchange blocks(room);
    row_cluster::open(blocks);
    part.start(row.in);
    cluster::wait();
    float edge_x = 0, edge_g = 0;
    if (row.has_edge) {
      edge_x = widen(x_data[row.p.row + row.edge_column]);
      edge_g = widen(grad_data[row.p.row + row.edge_column]) * widen(gamma_data[row.edge_column]);
    }
    float mean = 0, sum_of_x[1] = {edge_x};
    if constexpr (F::kCentered) {
      part.first_pass(row.in, [&](unsigned, const Part::OfInputs& of) {
        float x[V];
        widen<T>(x, of[0]);
        sum_of_x[0] += sum_of_lanes(x, [](float each) { return each; });
      });
      row_cluster::sum_of_block(sum_of_x, of_warp + kSums);
      mean = PartialSum{sum_of_x[0], row.elements_of(cluster::rank())}.mean();
    }
    Vector<T> gammas[Part::kBatch];
    const auto ask = [&](unsigned v, int j) { gammas[j] = row.p.columns(gamma_data, v); };
    float sums[kSums] = {};
    const auto sum = [&](unsigned, const Part::OfInputs& of, int j) {
      float x[V], g[V], gamma[V];
      widen(gamma, gammas[j]);
      widen<T>(x, of[0]);
      widen<T>(g, of[1]);
      add_products(sums, x, g, gamma, mean);
    };
    if constexpr (F::kCentered) {
      part.template next_pass<fetch::Leaves::last>(row.in, ask, sum);
    } else {
      part.first_pass(row.in, ask, sum);
    }
    if (row.has_edge) {
      sums[0] += (edge_x - mean) * (edge_x - mean);
      sums[1] += edge_g * (edge_x - mean);
      if (F::kCentered) sums[kSums - 1] += edge_g;
    }
    row_cluster::sum_of_block(sums, of_warp);
    mean = sum_of_row<F>(sums, sum_of_x[0], row, c, blocks);
    const Slope slope(mean, sums, c);
    if (part.own == 0) scales[cluster::number()] = {slope.mean, slope.scale};
    part.template next_pass<fetch::Leaves::first>(
        row.in, ask, [&](unsigned v, const Part::OfInputs& of, int j) {
          float x[V], g[V], gamma[V], add[V] = {};
          widen(gamma, gammas[j]);
          if (more_data) widen(add, fusedops::load(row.of(more_data, v)));
          widen<T>(x, of[0]);
          widen<T>(g, of[1]);
#pragma unroll
          for (int i = 0; i < V; ++i) x[i] = slope.of(g[i] * gamma[i], x[i]) + add[i];
          write_once(as_packed(row.of(out, v)), pack(narrow<T>(x)));
        });
    if (row.has_edge) {
      const std::int64_t to = row.p.row + row.edge_column;
      out[to] = narrow<T>(slope.of(edge_g, edge_x) + (more_data ? widen(more_data[to]) : 0));
    }
  }
}

}  // namespace fusedops::kernels::norm_detail
