// The gradients of a norm. With n the normalised row and g = grad gamma:
//   grad_x [rows, cols] = (g - mean(g) - n mean(g n)) / deviation + grad_sum,
//   grad_gamma [cols] = sum of grad n over the rows, grad_beta [cols] = sum of grad over the rows.
// One kernel writes grad_x and each row's mean and deviation; the next takes partial sums of the
// columns, which column_sum.cuh adds up.
#include "kernels/column_sum.cuh"
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

// Adds to the sums of (x - mean)^2, of g (x - mean), and of g if there are three, where g is
// grad gamma.
template <int kSums, int V>
FUSEDOPS_DEVICE void add_products(float (&sums)[kSums], float (&x)[V], float (&g)[V],
                                  const float (&gamma)[V], float mean) {
  float squares = 0, product = 0, plain = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] -= mean;
    g[i] *= gamma[i];
    squares = fmaf(x[i], x[i], squares);
    product = fmaf(g[i], x[i], product);
    if constexpr (kSums > 2) plain += g[i];
  }
  sums[0] += squares;
  sums[1] += product;
  if constexpr (kSums > 2) sums[2] += plain;
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
    __shared__ float of_warp[kSums + 2][kMostWarps];
    __shared__ row_cluster::BlockExchange<kSums + (F::kCentered ? 2 : 0)> room;
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const auto* const x_data = static_cast<const T*>(t.x);
    const auto* const grad_data = static_cast<const T*>(t.grad);
    const auto* const gamma_data = static_cast<const T*>(t.gamma);
    const auto* const more_data = static_cast<const T*>(t.grad_sum);
    auto* const out = static_cast<T*>(t.grad_x);
    const std::int64_t row = cluster::number();
    const RowSlice<T, kLayout> p(row, cols);
    const std::int64_t begin = p.row + p.span.head;
    const Part part(places, held, static_cast<unsigned>(p.span.vectors));
    const Packed* const in[2] = {as_packed(x_data + begin), as_packed(grad_data + begin)};
    row_cluster::open(room);
    part.start(in);
    cluster::wait();
    const bool has_edge = !p.kWhole && part.own < static_cast<unsigned>(p.span.edges);
    const std::int64_t edge_column = p.span.template edge<V>(static_cast<int>(part.own));
    float edge_x = 0, edge_g = 0;
    if (has_edge) {
      edge_x = widen(x_data[p.row + edge_column]);
      edge_g = widen(grad_data[p.row + edge_column]) * widen(gamma_data[edge_column]);
    }
    float mean = 0;
    PartialSum block{};
    if constexpr (F::kCentered) {
      float sum[2] = {edge_x, static_cast<float>(part.count() * V + has_edge)};
      part.first_pass(in, [&](unsigned, const Part::OfInputs& of) {
        float x[V];
        widen<T>(x, of[0]);
        sum[0] += sum_of_lanes(x, [](float each) { return each; });
      });
      row_cluster::sum_of_block(sum, of_warp + kSums);
      block = {sum[0], sum[1]};
      mean = block.mean();
    }
    Vector<T> gammas[Part::kBatch];
    const auto ask = [&](unsigned v, int j) { gammas[j] = p.columns(gamma_data, v); };
    float sums[kSums] = {};
    const auto sum = [&](unsigned, const Part::OfInputs& of, int j) {
      float x[V], g[V], gamma[V];
      widen(gamma, gammas[j]);
      widen<T>(x, of[0]);
      widen<T>(g, of[1]);
      add_products(sums, x, g, gamma, mean);
    };
    if constexpr (F::kCentered) {
      part.next_pass(in, ask, sum);
    } else {
      part.first_pass(in, ask, sum);
    }
    if (has_edge) {
      sums[0] += (edge_x - mean) * (edge_x - mean);
      sums[1] += edge_g * (edge_x - mean);
      if (F::kCentered) sums[kSums - 1] += edge_g;
    }
    row_cluster::sum_of_block(sums, of_warp);
    if constexpr (F::kCentered) {
      float all[5] = {block.sum, block.count, sums[0], sums[1], sums[2]};
      row_cluster::exchange(all, room);
      const PartialSum one{all[0], all[1]};
      mean = mean_of_row(one, c);
      const float apart = one.mean() - mean;
      sums[0] = fmaf(one.count, apart * apart, all[2]);
      sums[1] = fmaf(apart, all[4], all[3]);
      sums[2] = all[4];
    } else {
      row_cluster::exchange(sums, room);
    }
    row_cluster::sum_of_blocks(sums);
    const float scale = math::inverse_sqrt(fmaf(sums[0], c.inverse_n, c.eps));
    const float mean_gn = sums[1] * scale * c.inverse_n;
    const float mean_g = F::kCentered ? sums[kSums - 1] * c.inverse_n : 0;
    if (part.own == 0) scales[row] = {mean, scale};
    const auto of_x = [&](float g, float x) {
      return scale * (g - mean_g - (x - mean) * scale * mean_gn);
    };
    part.next_pass(in, ask, [&](unsigned v, const Part::OfInputs& of, int j) {
      const std::int64_t to = begin + std::int64_t{v} * V;
      float x[V], g[V], gamma[V], add[V] = {};
      widen(gamma, gammas[j]);
      if (more_data) widen(add, fusedops::load(more_data + to));
      widen<T>(x, of[0]);
      widen<T>(g, of[1]);
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = of_x(g[i] * gamma[i], x[i]) + add[i];
      store(out + to, narrow<T>(x));
    });
    if (has_edge) {
      const std::int64_t to = p.row + edge_column;
      out[to] = narrow<T>(of_x(edge_g, edge_x) + (more_data ? widen(more_data[to]) : 0));
    }
  }
}

// Launches a kernel for the gradients of the rows.
template <class F, class A>
gpu::Status launch_backward_rows(const Norm& call, const NormBackwardTensors& t, Scale<A>* scales,
                                 gpu::Stream stream) {
  using T = typename F::T;
  if constexpr (sizeof(T) < sizeof(double)) {
    const std::int64_t vectors = call.cols / kLanes<T>;
    if (!fits<Backward>(vectors) && is_narrow(call.cols) && gpu::has_clusters()) {
      const auto kernel = call.cols % kLanes<T> == 0
                              ? &backward_cluster_kernel<F, RowLayout::whole>
                              : &backward_cluster_kernel<F, RowLayout::shifted>;
      const auto layout = row_cluster::layout(vectors, 2, 64 * row_cluster::kKiB);
      return row_cluster::launch(kernel, call.rows, layout, stream, t, scales, call.cols,
                                 constants_of<A>(call), layout.held);
    }
  }
  const RowBlock block = any_block<T, Backward>(call);
  return overlap::launch(&backward_row_kernel<F>,
                         std::min(block.blocks(call.rows), gpu::kMostBlocks), block.dim(), stream,
                         t, scales, call.rows, call.cols, constants_of<A>(call));
}

constexpr int kInFlight = 2;  // vectors in flight, of each input

// A block's sums of grad n (for gamma) and of grad (for beta): rows of partial sums, one period
// wide, as in bias_act_backward.cu. The last elements, fewer than a vector, follow them.
template <class F>
__global__ void __launch_bounds__(kSumThreads)
    backward_gain_kernel(Accumulator<typename F::T>* __restrict__ of_gamma,
                         Accumulator<typename F::T>* __restrict__ of_beta,
                         const typename F::T* __restrict__ grad,
                         const typename F::T* __restrict__ x,
                         const Scale<Accumulator<typename F::T>>* __restrict__ scales,
                         const Tiling t) {
  using T = typename F::T;
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  __shared__ A shared[kSumThreads * V];
  overlap::wait();
  const unsigned group = blockIdx.x / t.col_tiles;
  const std::int64_t p =
      static_cast<std::int64_t>(blockIdx.x % t.col_tiles) * blockDim.x + threadIdx.x;
  A gamma[V] = {}, beta[V] = {};
  if (p < t.period) {
    // A period is one row, or as many rows as a vector has lanes. In the second case a vector may
    // end one row and begin the next: `begins` has a bit for each lane that begins a row.
    const int rows = t.whole_rows ? 1 : V;
    unsigned begins = 0;
#pragma unroll
    for (int i = 1; i < V; ++i) begins |= (p * V + i) % t.cols == 0 ? 1u << i : 0;
    std::int64_t period = static_cast<std::int64_t>(group) * t.steps * t.height + threadIdx.y;
    for (int done = 0; done < t.steps; done += kInFlight) {
      Vector<T> g[kInFlight], in[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = (period + k * t.height) * t.period + p;
        if (done + k < t.steps && at < t.vectors) {
          g[k] = load(grad + at * V);
          in[k] = load(x + at * V);
        }
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k, period += t.height) {
        if (done + k >= t.steps || period * t.period + p >= t.vectors) continue;
        const Scale<A>* by = scales + period * rows + p * V / t.cols;
        A upper[V], n[V];
        widen(upper, g[k]);
        widen(n, in[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if (begins >> i & 1) ++by;
          gamma[i] = fma(upper[i], (n[i] - by->mean) * by->scale, gamma[i]);
          beta[i] += upper[i];
        }
      }
    }
  }
  const std::int64_t at = (group * t.period + p) * V;
  sum_block(of_gamma + at, gamma, shared, p < t.period ? V : 0);
  if constexpr (F::kCentered) {
    __syncthreads();
    sum_block(of_beta + at, beta, shared, p < t.period ? V : 0);
  }
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (blockIdx.x == 0 && thread < t.tail) {
    const std::int64_t last = t.vectors * V + thread, sum = t.row_groups * t.period * V + thread;
    const Scale<A> by = scales[last / t.cols];
    of_gamma[sum] = widen(grad[last]) * ((widen(x[last]) - by.mean) * by.scale);
    if constexpr (F::kCentered) of_beta[sum] = widen(grad[last]);
  }
}

inline Tiling gain_tiling(const Norm& call) {
  return sum_tiling(call.rows, call.cols, nullptr, kVectorBytes / element_size(call.dtype));
}

// The number of partial sums of gamma, and of beta.
inline std::int64_t partials(const Tiling& t, int lanes) {
  return t.row_groups * t.period * lanes + t.tail;
}

template <class F>
gpu::Status launch_backward(const Norm& call, const NormBackwardTensors& t, gpu::Stream stream) {
  using T = typename F::T;
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  auto* scales = static_cast<Scale<A>*>(t.scratch);
  auto* of_gamma = reinterpret_cast<A*>(scales + call.rows);
  A* of_beta = of_gamma;
  std::int64_t rows = 0, tail_column = 0;
  int tail = 0;
  if (call.rows > 0) {
    gpu::Status status = launch_backward_rows<F>(call, t, scales, stream);
    if (status != gpu::kSuccess) return status;
    const Tiling tiling = gain_tiling(call);
    of_beta += partials(tiling, V);
    status = overlap::launch(&backward_gain_kernel<F>, tiling.blocks(),
                             dim3(tiling.width, tiling.height), stream, of_gamma, of_beta,
                             static_cast<const T*>(t.grad), static_cast<const T*>(t.x),
                             static_cast<const Scale<A>*>(scales), tiling);
    if (status != gpu::kSuccess) return status;
    rows = tiling.row_groups * tiling.period * V / tiling.cols;
    tail = tiling.tail;
    tail_column = tiling.vectors * V % tiling.cols;
  }
  const auto sum = [&](void* out, const A* partial) {
    return column_sum(static_cast<T*>(out), partial, rows, call.cols, tail, tail_column, stream);
  };
  const gpu::Status status = sum(t.grad_gamma, of_gamma);
  return status == gpu::kSuccess && F::kCentered ? sum(t.grad_beta, of_beta) : status;
}

}  // namespace fusedops::kernels::norm_detail

namespace fusedops::kernels {

using namespace norm_detail;

std::int64_t norm_backward_scratch(const Norm& call) {
  if (call.rows == 0) return 0;
  const std::int64_t sums = partials(gain_tiling(call), kVectorBytes / element_size(call.dtype));
  return (2 * call.rows + (call.centered ? 2 : 1) * sums) * accumulator_size(call.dtype);
}

gpu::Status norm_backward(const Norm& call, const NormBackwardTensors& tensors,
                          gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    return call.centered ? launch_backward<Formula<T, true, Adds::nothing>>(call, tensors, stream)
                         : launch_backward<Formula<T, false, Adds::nothing>>(call, tensors, stream);
  });
}

TORCHWHEEL_EXPORT(norm_backward_scratch)
TORCHWHEEL_EXPORT(norm_backward)

}  // namespace fusedops::kernels
