#include "kernels/activation.cuh"
#include "kernels/bias.cuh"
#include "kernels/bias_act.h"
#include "kernels/dispatch.cuh"

namespace fusedops::kernels {
namespace {

constexpr int kPerThread = 16;  // elements of a thread of the unaligned kernel

// kInFlight loads are issued before the first is used.
template <class T, class Act, int kInFlight>
__global__ void __launch_bounds__(kThreads)
    bias_act_kernel(T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ bias,
                    const Tiling t) {
  constexpr int V = kLanes<T>;
  const unsigned group = blockIdx.x / t.col_tiles;
  const std::int64_t p =
      static_cast<std::int64_t>(blockIdx.x % t.col_tiles) * blockDim.x + threadIdx.x;
  if (p < t.period) {
    Accumulator<T> b[V];
    load_bias(b, bias, p, t);
    const std::int64_t step = t.height * t.period;
    std::int64_t vector =
        (static_cast<std::int64_t>(group) * t.steps * t.height + threadIdx.y) * t.period + p;
    for (int done = 0; done < t.steps; done += kInFlight, vector += kInFlight * step) {
      Vector<T> in[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = vector + k * step;
        if (done + k < t.steps && at < t.vectors) in[k] = load(x + at * V);
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const std::int64_t at = vector + k * step;
        if (done + k < t.steps && at < t.vectors) {
          Accumulator<T> out[V];
#pragma unroll
          for (int i = 0; i < V; ++i) out[i] = Act::template value<T>(widen(in[k].lane[i]) + b[i]);
          store(y + at * V, narrow<T>(out));
        }
      }
    }
  }
  // The last elements, fewer than a vector.
  const int lane = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (blockIdx.x == 0 && lane < t.tail) {
    const std::int64_t at = t.vectors * V + lane;
    y[at] = narrow<T>(Act::template value<T>(widen(x[at]) + widen(bias[at % t.cols])));
  }
}

// For pointers off 16 bytes: neighbouring threads take neighbouring elements.
template <class T, class Act>
__global__ void __launch_bounds__(kThreads)
    unaligned_kernel(T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ bias,
                     std::int64_t elements, std::int64_t cols) {
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
  std::int64_t column = at % cols;
  const std::int64_t stride = kThreads % cols;
#pragma unroll 4
  for (int k = 0; k < kPerThread; ++k, at += kThreads) {
    if (at < elements) {
      y[at] = narrow<T>(Act::template value<T>(widen(x[at]) + widen(bias[column])));
    }
    column += stride;
    if (column >= cols) column -= cols;
  }
}

// Small tensors want many threads, large ones few fetches of the bias.
int steps_for(const Tiling& t) {
  constexpr std::int64_t kSmall = std::int64_t{1} << 18;  // vectors: 4 MiB
  if (t.vectors < kSmall) return 1;
  return t.whole_rows ? 4 : 8;
}

template <class T, class Act>
gpu::Status launch_bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                            gpu::Stream stream) {
  auto* out = static_cast<T*>(y);
  const auto* in = static_cast<const T*>(x);
  const auto* b = static_cast<const T*>(bias);
  if (!aligned(x) || !aligned(y)) {
    const std::int64_t elements = call.rows * call.cols;
    return gpu::launch(&unaligned_kernel<T, Act>, ceil_div(elements, kThreads * kPerThread),
                       dim3(kThreads), stream, out, in, b, elements, call.cols);
  }
  Tiling t = tile(call.rows, call.cols, bias, kLanes<T>, gpu::kWarpSize);
  t = with_steps(t, steps_for(t));
  return gpu::launch(&bias_act_kernel<T, Act, 4>, t.blocks(), dim3(t.width, t.height), stream, out,
                     in, b, t);
}

template <class T>
gpu::Status with_activation(const BiasAct& call, void* y, const void* x, const void* bias,
                            gpu::Stream stream) {
  switch (call.activation) {
    case Activation::identity:
      return launch_bias_act<T, activation::Identity>(call, y, x, bias, stream);
    case Activation::relu:
      return launch_bias_act<T, activation::Relu>(call, y, x, bias, stream);
    case Activation::gelu_tanh:
      return launch_bias_act<T, activation::GeluTanh>(call, y, x, bias, stream);
    case Activation::gelu_erf:
      return launch_bias_act<T, activation::GeluErf>(call, y, x, bias, stream);
  }
  return gpu::kInvalidValue;
}

}  // namespace

gpu::Status bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                     gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    return with_activation<typename decltype(type)::T>(call, y, x, bias, stream);
  });
}

}  // namespace fusedops::kernels
