#include "kernels/activation.cuh"
#include "kernels/bias.cuh"
#include "kernels/bias_act_backward.h"
#include "kernels/dispatch.cuh"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace bias_act_backward_detail {

constexpr int kThreads = 256;  // more rows are summed before a partial sum is written

// First stage: every block writes grad_x of its tile and one row of partial column sums, a period
// wide. A period is `cols` times a whole number, so the rows of all blocks together are a
// contiguous [n, cols] matrix. The gradients of the last elements, fewer than a vector, follow it.
template <class T, class Act, int kInFlight>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(T* __restrict__ grad_x, Accumulator<T>* __restrict__ partial,
                    const T* __restrict__ grad, const T* __restrict__ x, const T* __restrict__ bias,
                    const Tiling t) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  __shared__ A shared[kThreads * V];
  const unsigned group = blockIdx.x / t.col_tiles;
  const std::int64_t p =
      static_cast<std::int64_t>(blockIdx.x % t.col_tiles) * blockDim.x + threadIdx.x;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  A sum[V] = {};
  if (p < t.period) {
    A b[V];
    load_bias(b, bias, p, t);
    const std::int64_t step = t.height * t.period;
    std::int64_t vector =
        (static_cast<std::int64_t>(group) * t.steps * t.height + threadIdx.y) * t.period + p;
    for (int done = 0; done < t.steps; done += kInFlight, vector += kInFlight * step) {
      Vector<T> g[kInFlight], in[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = vector + k * step;
        if (done + k < t.steps && at < t.vectors) {
          g[k] = load(grad + at * V);
          in[k] = load(x + at * V);
        }
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = vector + k * step;
        if (done + k < t.steps && at < t.vectors) {
          A out[V];
#pragma unroll
          for (int i = 0; i < V; ++i) {
            out[i] = Act::template gradient<T>(widen(in[k].lane[i]) + b[i], widen(g[k].lane[i]));
            sum[i] += out[i];
          }
          store(grad_x + at * V, narrow<T>(out));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) shared[i * kThreads + thread] = sum[i];
  __syncthreads();
  if (threadIdx.y == 0 && p < t.period) {
#pragma unroll 1
    for (int i = 0; i < V; ++i) {
      A total = 0;
#pragma unroll 1
      for (unsigned row = 0; row < t.height; ++row) {
        total += shared[i * kThreads + row * blockDim.x + threadIdx.x];
      }
      partial[(group * t.period + p) * V + i] = total;
    }
  }
  if (blockIdx.x == 0 && thread < t.tail) {
    const std::int64_t at = t.vectors * V + thread;
    const A out =
        Act::template gradient<T>(widen(x[at]) + widen(bias[at % t.cols]), widen(grad[at]));
    grad_x[at] = narrow<T>(out);
    partial[t.row_groups * t.period * V + thread] = out;
  }
}

constexpr int kColumns = 32;  // of a block of the second stage
constexpr int kRows = kThreads / kColumns;

// Second stage: the sum of each column of the [rows, cols] partial sums, and of the `tail` values
// after them, the first of which belongs to column `tail_column`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_sum_kernel(T* __restrict__ out, const Accumulator<T>* __restrict__ partial,
                      std::int64_t rows, std::int64_t cols, int tail, std::int64_t tail_column) {
  using A = Accumulator<T>;
  __shared__ A shared[kRows][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  A sum = 0;
  if (column < cols) {
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < rows; row += kRows) {
      sum += partial[row * cols + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  A total = 0;
  for (int row = 0; row < kRows; ++row) total += shared[row][threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < tail; ++i) {
    if (tail_column == column) total += partial[rows * cols + i];
    tail_column = tail_column + 1 == cols ? 0 : tail_column + 1;
  }
  out[column] = narrow<T>(total);
}

// Few enough blocks that the partial sums are a small part of the traffic, enough to fill any GPU;
// the same on every GPU, so that the sum's bits are too.
inline Tiling backward_tiling(const BiasAct& call, const void* bias = nullptr) {
  constexpr std::int64_t kBlocks = 1024;
  constexpr std::int64_t kLeastSteps = 8;
  const Tiling t = tile(call.rows, call.cols, bias, kVectorBytes / element_size(call.dtype),
                        kThreads, gpu::kWarpSize);
  const std::int64_t groups = std::max<std::int64_t>(1, kBlocks / t.col_tiles);
  const std::int64_t steps = ceil_div(t.periods, groups * t.height);
  return with_steps(t, static_cast<int>(std::max(steps, kLeastSteps)));
}

template <class T, class Act>
gpu::Status launch_backward(const BiasAct& call, void* grad_x, void* grad_bias, const void* grad,
                            const void* x, const void* bias, void* scratch, gpu::Stream stream) {
  constexpr int V = kLanes<T>;
  auto* partial = static_cast<Accumulator<T>*>(scratch);
  std::int64_t rows = 0, tail_column = 0;
  int tail = 0;
  if (call.rows > 0) {
    const Tiling t = backward_tiling(call, bias);
    const gpu::Status status =
        gpu::launch(&backward_kernel<T, Act, 4>, t.blocks(), dim3(t.width, t.height), stream,
                    static_cast<T*>(grad_x), partial, static_cast<const T*>(grad),
                    static_cast<const T*>(x), static_cast<const T*>(bias), t);
    if (status != gpu::kSuccess) return status;
    rows = t.row_groups * t.period * V / t.cols;
    tail = t.tail;
    tail_column = t.vectors * V % t.cols;
  }
  return gpu::launch(&column_sum_kernel<T>, ceil_div(call.cols, kColumns), dim3(kColumns, kRows),
                     stream, static_cast<T*>(grad_bias),
                     static_cast<const Accumulator<T>*>(partial), rows, call.cols, tail,
                     tail_column);
}

}  // namespace bias_act_backward_detail

using namespace bias_act_backward_detail;

std::int64_t bias_act_backward_scratch(const BiasAct& call) {
  if (call.rows == 0) return 0;
  const Tiling t = backward_tiling(call);
  const std::int64_t lanes = kVectorBytes / element_size(call.dtype);
  return (t.row_groups * t.period * lanes + t.tail) * accumulator_size(call.dtype);
}

gpu::Status bias_act_backward(const BiasAct& call, void* grad_x, void* grad_bias, const void* grad,
                              const void* x, const void* bias, void* scratch, gpu::Stream stream) {
  if (!aligned(grad_x) || !aligned(grad) || !aligned(x)) return gpu::kInvalidValue;
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    switch (call.activation) {
      case Activation::relu:
        return launch_backward<T, activation::Relu>(call, grad_x, grad_bias, grad, x, bias, scratch,
                                                    stream);
      case Activation::gelu_tanh:
        return launch_backward<T, activation::GeluTanh>(call, grad_x, grad_bias, grad, x, bias,
                                                        scratch, stream);
      case Activation::gelu_erf:
        return launch_backward<T, activation::GeluErf>(call, grad_x, grad_bias, grad, x, bias,
                                                       scratch, stream);
      case Activation::identity:
        break;
    }
    return gpu::kInvalidValue;
  });
}

}  // namespace fusedops::kernels
