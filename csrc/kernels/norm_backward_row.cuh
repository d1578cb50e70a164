// The gradient of a norm with respect to its rows. A row that its threads hold at once is read
// once, a longer one three times: for its mean and deviation, for the sums, and to be written.
#pragma once

#include "kernels/norm_backward.h"
#include "kernels/norm_general.cuh"

namespace fusedops::kernels::norm_detail {

using Backward = Shape<1, 1024, 1, 0>;

// Two parts of rows are held, x and its gradient.
template <class F>
struct BackwardRow {
  using T = typename F::T;
  using A = Accumulator<T>;
  static constexpr int V = kLanes<T>;
  Part<F, Backward> x, grad;

  FUSEDOPS_DEVICE static void load(Part<F, Backward>& part, const T* data,
                                   const Place<T, Rows::any>& p) {
    Tensors<T> t{};
    t.x = data;
    Loads<F, Backward, Rows::any> in;
    in.start(t, p);
    take(part, in, t, p, static_cast<T*>(nullptr));
  }

  // From x and grad to the normalised row n and g = grad gamma.
  FUSEDOPS_DEVICE void weigh(const T* gamma, const Scale<A>& by, const Place<T, Rows::any>& p) {
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
  FUSEDOPS_DEVICE Two<A> sums(const Place<T, Rows::any>& p) const {
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
                             const Place<T, Rows::any>& p) const {
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

// A block has blockDim.y rows, blockDim.x threads each, as general_kernel's. The rows' means and
// deviations are left in `scales`.
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
    // Past the end the last row once more, unwritten: all of a warp take part in reductions.
    const std::int64_t row = first + threadIdx.y;
    const bool live = row < rows;
    Place<T, Rows::any> p(live ? row : rows - 1, cols);
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

}  // namespace fusedops::kernels::norm_detail
