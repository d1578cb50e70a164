// The gradients of y = v f(g), where v and g are the halves of x + bias, [rows, 2 cols]:
//   grad_x[r, c] = grad f(g), grad_x[r, cols + c] = grad v f'(g), with grad [rows, cols],
//   grad_bias [2 cols] = the sum of grad_x over the rows.
// Without a bias one kernel does it. With one, blocks write partial sums of the columns, which a
// second kernel adds up (column_sum.cuh).
#include "kernels/activation.cuh"
#include "kernels/column_sum.cuh"
#include "kernels/gated.h"
#include "kernels/tiling.h"
#include "kernels/unaligned.cuh"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace gated_backward_detail {

// The gradients of V columns of both halves.
template <class T, class Act>
FUSEDOPS_DEVICE void gradients(const Act& act, Accumulator<T> (&out)[2][kLanes<T>],
                               const Vector<T>& grad, const Vector<T> (&in)[2],
                               const Vector<T> (&bias)[2]) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  A upper[V], value[V], gate[V], add[2][V];
  widen(upper, grad);
  widen(value, in[0]);
  widen(gate, in[1]);
  widen(add[0], bias[0]);
  widen(add[1], bias[1]);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    value[i] += add[0][i];
    gate[i] += add[1][i];
  }
  act.with([&](auto f) {
    using F = decltype(f);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      out[0][i] = upper[i] * F::template value<T>(gate[i]);
      out[1][i] = F::template gradient<T>(gate[i], upper[i] * value[i]);
    }
  });
}

// For rows of whole vectors and no bias. A thread has the same columns of both halves.
template <class T, class Act>
__global__ void __launch_bounds__(kThreads)
    whole_rows_kernel(T* __restrict__ grad_x, const T* __restrict__ grad, const T* __restrict__ x,
                      unsigned rows, unsigned period) {
  constexpr int V = kLanes<T>;
  const unsigned p = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned row = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
  if (row >= rows || p >= period) return;
  const std::uint64_t before = static_cast<std::uint64_t>(row) * period;
  const std::uint64_t first = (2 * before + p) * V, second = first + period * V;
  const Vector<T> g = load(grad + (before + p) * V), in[2] = {load(x + first), load(x + second)};
  Accumulator<T> out[2][V];
  gradients(activation::Fixed<Act>{}, out, g, in, {});
  store(grad_x + first, narrow<T>(out[0]));
  store(grad_x + second, narrow<T>(out[1]));
}

// For rows of whole vectors and an aligned bias. A thread walks down the rows, and its block writes
// a row of partial column sums, [2 cols].
template <class T, class Act>
__global__ void __launch_bounds__(kSumThreads)
    whole_rows_sum_kernel(T* __restrict__ grad_x, Accumulator<T>* __restrict__ partial,
                          const T* __restrict__ grad, const T* __restrict__ x,
                          const T* __restrict__ bias, const Tiling t) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>, kInFlight = 2;  // rows in flight
  const unsigned group = blockIdx.x / t.col_tiles;
  const std::int64_t p =
      static_cast<std::int64_t>(blockIdx.x % t.col_tiles) * blockDim.x + threadIdx.x;
  const bool has_columns = p < t.period;
  A sum[2][V] = {};
  if (has_columns) {
    const Vector<T> b[2] = {load(bias + p * V), load(bias + t.cols + p * V)};
    std::int64_t row = static_cast<std::int64_t>(group) * t.steps * t.height + threadIdx.y;
#pragma unroll 1
    for (int done = 0; done < t.steps; done += kInFlight, row += kInFlight * t.height) {
      Vector<T> g[kInFlight], in[kInFlight][2];
      std::int64_t first[kInFlight];
      bool present[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = row + k * t.height;
        present[k] = done + k < t.steps && at < t.periods;
        first[k] = 2 * at * t.cols + p * V;
        if (present[k]) {
          g[k] = load(grad + at * t.cols + p * V);
          in[k][0] = load(x + first[k]);
          in[k][1] = load(x + first[k] + t.cols);
        }
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (!present[k]) continue;
        A out[2][V];
        gradients(activation::Fixed<Act>{}, out, g[k], in[k], b);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          sum[0][i] += out[0][i];
          sum[1][i] += out[1][i];
        }
        store(grad_x + first[k], narrow<T>(out[0]));
        store(grad_x + first[k] + t.cols, narrow<T>(out[1]));
      }
    }
  }
  __shared__ A shared[2][kSumThreads * V];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum_block(partial + (2 * group + half) * t.cols + p * V, sum[half], shared[half],
              has_columns ? V : 0);
  }
}

// For any number of columns, with or without a bias. A thread has the same columns of both halves
// and walks down the rows. With a bias, its block writes a row of partial column sums, [2 cols].
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    any_rows_kernel(const Gates gates, T* __restrict__ grad_x, Accumulator<T>* __restrict__ partial,
                    const T* __restrict__ grad, const T* __restrict__ x, const T* __restrict__ bias,
                    std::int64_t cols, const Tiling t) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  const unsigned group = blockIdx.x / t.col_tiles;
  const std::int64_t c =
      V * overlapping_vector(static_cast<std::int64_t>(blockIdx.x % t.col_tiles) * blockDim.x +
                             threadIdx.x);
  const int count = c < 0 || c >= cols ? 0 : static_cast<int>(cols - c < V ? cols - c : V);
  const bool inside = c >= V && c + 2 * V <= cols;  // the aligned vectors around it lie in the row
  Vector<T> b[2] = {};
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (bias && i < count) {
      b[0].lane[i] = bias[c + i];
      b[1].lane[i] = bias[cols + c + i];
    }
  }
  A sum[2][V] = {};
  std::int64_t row = static_cast<std::int64_t>(group) * t.steps * t.height + threadIdx.y;
#pragma unroll 1
  for (int done = 0; done < t.steps && row < t.periods; ++done, row += t.height) {
    const T* upper = grad + row * cols + c;
    const T* halves = x + 2 * row * cols + c;
    Vector<T> g = {}, in[2] = {};
    if (inside) {
      g = load_anywhere(upper);
      in[0] = load_anywhere(halves);
      in[1] = load_anywhere(halves + cols);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (i < count) {
          g.lane[i] = upper[i];
          in[0].lane[i] = halves[i];
          in[1].lane[i] = halves[cols + i];
        }
      }
    }
    A out[2][V];
    gradients(gates, out, g, in, b);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum[0][i] += out[0][i];
      sum[1][i] += out[1][i];
    }
    T* data = grad_x + 2 * row * cols;
    Vector<T> now = narrow<T>(out[0]);
    const Vector<T> later = narrow<T>(out[1]);
#pragma unroll 1
    for (int half = 0; half < 2; ++half, data += cols, now = later) {
      store_overlapping(data, c, cols, now);
    }
  }
  if (!bias) return;
  __shared__ A shared[2][kSumThreads * V];
  const int mine = threadIdx.x % warp::kWidth == 0 ? 0 : count;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum_block(partial + (2 * group + half) * cols + c, sum[half], shared[half], mine);
  }
}

// How any_rows_kernel's threads are laid over the rows. tile() takes a thread for a vector. If
// there are enough rows, a thread takes several: the work for its columns is then done once.
template <class T>
Tiling backward_tiling(const Gated& call, bool bias) {
  constexpr std::int64_t kSmall = std::int64_t{1} << 18;  // vectors, 4 MiB
  const std::int64_t cols = overlapping_threads(ceil_div(call.cols, kLanes<T>)) * kLanes<T>;
  if (bias) return sum_tiling(call.rows, cols, nullptr, kLanes<T>);
  const Tiling t = tile(call.rows, cols, nullptr, kLanes<T>, kSumThreads, gpu::kWarpSize);
  return with_steps(t, t.vectors < kSmall ? 1 : 4);
}

// How whole_rows_sum_kernel's threads are laid over rows of whole vectors.
template <class T>
Tiling whole_tiling(const Gated& call, const T* bias) {
  return sum_tiling(call.rows, call.cols, bias, kLanes<T>);
}

template <class T>
gpu::Status launch_backward(const Gated& call, T* grad_x, T* grad_bias, const T* grad, const T* x,
                            const T* bias, Accumulator<T>* partial, gpu::Stream stream) {
  const Gates gates{call.gate};
  std::int64_t groups = 0;
  if (call.rows > 0) {
    if constexpr (sizeof(T) < 8) {  // float64 is for gradient checks: one kernel is enough
      const bool whole = call.cols % kLanes<T> == 0 && is_narrow(call.rows) && is_narrow(call.cols);
      if (!bias && whole) {
        const std::int64_t period = call.cols / kLanes<T>;
        const RowGrid grid = row_grid(call.rows, period, 1);
        return gates.fix([&](auto gate) {
          return gpu::launch(&whole_rows_kernel<T, typename decltype(gate)::T>, grid.blocks,
                             grid.threads, stream, grad_x, grad, x,
                             static_cast<unsigned>(call.rows), static_cast<unsigned>(period));
        });
      }
      if (whole && aligned(bias)) {
        const Tiling t = whole_tiling(call, bias);
        const gpu::Status status = gates.fix([&](auto gate) {
          return gpu::launch(&whole_rows_sum_kernel<T, typename decltype(gate)::T>, t.blocks(),
                             dim3(t.width, t.height), stream, grad_x, partial, grad, x, bias, t);
        });
        if (status != gpu::kSuccess) return status;
        return column_sum(grad_bias, static_cast<const Accumulator<T>*>(partial),
                          std::int64_t{t.row_groups}, 2 * call.cols, 0, 0, stream);
      }
    }
    const Tiling t = backward_tiling<T>(call, bias != nullptr);
    const gpu::Status status =
        gpu::launch(&any_rows_kernel<T>, t.blocks(), dim3(t.width, t.height), stream, gates, grad_x,
                    partial, grad, x, bias, call.cols, t);
    if (status != gpu::kSuccess || !bias) return status;
    groups = t.row_groups;
  }
  return column_sum(grad_bias, static_cast<const Accumulator<T>*>(partial), groups, 2 * call.cols,
                    0, 0, stream);
}

}  // namespace gated_backward_detail

using namespace gated_backward_detail;

std::int64_t gated_backward_scratch(const Gated& call) {
  std::int64_t bytes = 0;
  const gpu::Status status = with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if (call.rows == 0) return gpu::kSuccess;
    // The alignment of the bias decides which kernel runs, so this is enough for both.
    const unsigned groups = std::max(backward_tiling<T>(call, true).row_groups,
                                     whole_tiling<T>(call, nullptr).row_groups);
    bytes = std::int64_t{groups} * 2 * call.cols * static_cast<int>(sizeof(Accumulator<T>));
    return gpu::kSuccess;
  });
  return status == gpu::kSuccess ? bytes : 0;
}

gpu::Status gated_backward(const Gated& call, void* grad_x, void* grad_bias, const void* grad,
                           const void* x, const void* bias, void* scratch, gpu::Stream stream) {
  if (!aligned(grad_x) || !aligned(grad) || !aligned(x)) return gpu::kInvalidValue;
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    return launch_backward(call, static_cast<T*>(grad_x), static_cast<T*>(grad_bias),
                           static_cast<const T*>(grad), static_cast<const T*>(x),
                           static_cast<const T*>(bias), static_cast<Accumulator<T>*>(scratch),
                           stream);
  });
}

TORCHWHEEL_EXPORT(gated_backward_scratch)
TORCHWHEEL_EXPORT(gated_backward)

}  // namespace fusedops::kernels
