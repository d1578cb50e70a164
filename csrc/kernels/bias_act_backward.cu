// grad_x[r, c] = grad[r, c] f'(x[r, c] + bias[c]), all [rows, cols], and
// grad_bias[c] = the sum of grad_x[r, c] over r, [cols].
// One kernel writes grad_x and partial sums, a second one adds these up (column_sum.cuh).
#include "kernels/activation.cuh"
#include "kernels/bias_act.h"
#include "kernels/column_sum.cuh"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"

namespace fusedops {

// at % cols. A 64-bit remainder costs ten times a 32-bit one, and is seldom needed.
__device__ __forceinline__ std::int64_t column_of(std::int64_t at, std::int64_t cols) {
  constexpr std::int64_t kNarrow = std::int64_t{1} << 32;
  return at < kNarrow && cols < kNarrow
             ? static_cast<std::uint32_t>(at) % static_cast<std::uint32_t>(cols)
             : at % cols;
}

// Loads the bias of the `kLanes` columns of vector `p` of a period.
template <class T>
__device__ __forceinline__ void load_bias(Accumulator<T> (&out)[kLanes<T>],
                                          const T* __restrict__ bias, std::int64_t p,
                                          const Tiling& t) {
  constexpr int V = kLanes<T>;
  Vector<T> in;
  if (t.vector_bias) {
    in = load(bias + p * V);
  } else {
    std::int64_t column = column_of(p * V, t.cols);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      in.lane[i] = bias[column];
      column = column + 1 == t.cols ? 0 : column + 1;
    }
  }
  widen(out, in);
}

}  // namespace fusedops

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace bias_act_backward_detail {

// First stage: each block writes grad_x of its tile and one row of partial column sums, a period
// wide. A period is a multiple of `cols`, so the rows of all blocks together are a contiguous [n,
// cols] matrix. The gradients of the last elements, fewer than a vector, follow it.
template <class T, class Act>
__global__ void __launch_bounds__(kSumThreads)
    backward_kernel(T* __restrict__ grad_x, Accumulator<T>* __restrict__ partial,
                    const T* __restrict__ grad, const T* __restrict__ x, const T* __restrict__ bias,
                    const Tiling t) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>, kInFlight = 4;  // vectors in flight, of each input
  __shared__ A shared[kSumThreads * V];
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
  sum_block(partial + (group * t.period + p) * V, sum, shared, p < t.period ? V : 0);
  if (blockIdx.x == 0 && thread < t.tail) {
    const std::int64_t at = t.vectors * V + thread;
    const A out =
        Act::template gradient<T>(widen(x[at]) + widen(bias[at % t.cols]), widen(grad[at]));
    grad_x[at] = narrow<T>(out);
    partial[t.row_groups * t.period * V + thread] = out;
  }
}

inline Tiling backward_tiling(const BiasAct& call, const void* bias = nullptr) {
  return sum_tiling(call.rows, call.cols, bias, kVectorBytes / element_size(call.dtype));
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
        gpu::launch(&backward_kernel<T, Act>, t.blocks(), dim3(t.width, t.height), stream,
                    static_cast<T*>(grad_x), partial, static_cast<const T*>(grad),
                    static_cast<const T*>(x), static_cast<const T*>(bias), t);
    if (status != gpu::kSuccess) return status;
    rows = t.row_groups * t.period * V / t.cols;
    tail = t.tail;
    tail_column = t.vectors * V % t.cols;
  }
  return column_sum(static_cast<T*>(grad_bias), static_cast<const Accumulator<T>*>(partial), rows,
                    call.cols, tail, tail_column, stream);
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
  using Activations =
      activation::Among<activation::Relu, activation::GeluTanh, activation::GeluErf>;
  return with_type(call.dtype, [&](auto type) {
    return Activations{call.activation}.fix([&](auto act) {
      return launch_backward<typename decltype(type)::T, typename decltype(act)::T>(
          call, grad_x, grad_bias, grad, x, bias, scratch, stream);
    });
  });
}

TORCHWHEEL_EXPORT(bias_act_backward_scratch)
TORCHWHEEL_EXPORT(bias_act_backward)

}  // namespace fusedops::kernels
