// The gradients of a norm. With n the normalised row and g = grad gamma:
//   grad_x [rows, cols] = (g - mean(g) - n mean(g n)) / deviation + grad_sum,
//   grad_gamma [cols] = sum of grad n over the rows, grad_beta [cols] = sum of grad over the rows.
// Where all rows are for teams (norm_backward_once.cuh), one kernel writes grad_x and partial sums
// of the columns. Else one writes grad_x and each row's mean and deviation, and the next takes the
// partial sums. column_sum.cuh adds them up.
#include "kernels/column_sum.cuh"
#include "kernels/norm_backward_once.cuh"

namespace fusedops::kernels::norm_detail {

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

// Partial sums of the columns: rows of them, and a tail as in column_sum.cuh.
template <class A>
struct ColumnPartials {
  A *of_gamma, *of_beta;
  std::int64_t rows = 0, tail_column = 0;
  int tail = 0;
};

// Writes grad_x and the partial sums, of at least one row.
template <class F, class A>
gpu::Status launch_rows_and_sums(const Norm& call, const NormBackwardTensors& t,
                                 ColumnPartials<A>& sums, gpu::Stream stream) {
  using T = typename F::T;
  if constexpr (sizeof(T) < sizeof(double)) {
    const Teams teams = teams_of(call);
    if (teams.count > 0) {
      sums.rows = teams.count;
      sums.of_gamma = static_cast<A*>(t.scratch);
      sums.of_beta = sums.of_gamma + teams.count * call.cols;
      return launch_backward_once<F>(call, t, teams, sums.of_gamma, sums.of_beta, stream);
    }
  }
  auto* const scales = static_cast<Scale<A>*>(t.scratch);
  const gpu::Status status = launch_backward_rows<F>(call, t, scales, stream);
  if (status != gpu::kSuccess) return status;
  const Tiling tiling = gain_tiling(call);
  sums.of_gamma = reinterpret_cast<A*>(scales + call.rows);
  sums.of_beta = sums.of_gamma + partials(tiling, kLanes<T>);
  sums.rows = tiling.row_groups * tiling.period * kLanes<T> / tiling.cols;
  sums.tail = tiling.tail;
  sums.tail_column = tiling.vectors * kLanes<T> % tiling.cols;
  return overlap::launch(&backward_gain_kernel<F>, tiling.blocks(),
                         dim3(tiling.width, tiling.height), stream, sums.of_gamma, sums.of_beta,
                         static_cast<const T*>(t.grad), static_cast<const T*>(t.x),
                         static_cast<const Scale<A>*>(scales), tiling);
}

template <class F>
gpu::Status launch_backward(const Norm& call, const NormBackwardTensors& t, gpu::Stream stream) {
  using T = typename F::T;
  ColumnPartials<Accumulator<T>> sums{};
  if (call.rows > 0) {
    const gpu::Status status = launch_rows_and_sums<F>(call, t, sums, stream);
    if (status != gpu::kSuccess) return status;
  }
  const auto sum = [&](void* out, const Accumulator<T>* partial) {
    return column_sum(static_cast<T*>(out), partial, sums.rows, call.cols, sums.tail,
                      sums.tail_column, stream);
  };
  const gpu::Status status = sum(t.grad_gamma, sums.of_gamma);
  return status == gpu::kSuccess && F::kCentered ? sum(t.grad_beta, sums.of_beta) : status;
}

}  // namespace fusedops::kernels::norm_detail

namespace fusedops::kernels {

using namespace norm_detail;

std::int64_t norm_backward_scratch(const Norm& call) {
  if (call.rows == 0) return 0;
  const int gains = call.centered ? 2 : 1, size = accumulator_size(call.dtype);
  const std::int64_t teams = teams_of(call).count;
  if (teams > 0) return gains * teams * call.cols * size;
  const int lanes = kVectorBytes / element_size(call.dtype);
  return (2 * call.rows + gains * partials(gain_tiling(call), lanes)) * size;
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
