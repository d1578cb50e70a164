#include "kernels/activation.cuh"
#include "kernels/bias.cuh"
#include "kernels/bias_act.h"
#include "kernels/dispatch.cuh"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace bias_act_detail {

constexpr int kPerThread = 16;  // elements of a thread of the unaligned kernel
constexpr std::int64_t kSmall = std::int64_t{1} << 18;  // vectors (4 MiB): more threads, not steps

// Whether the registers of a full multiprocessor do for the arithmetic; where they do not, a spill
// costs more than the waiting threads hide.
template <class T, class Act>
constexpr bool kLight = sizeof(T) < 8 && !std::is_same_v<Act, activation::GeluErf>;

// The usual case, rows of whole vectors, as few instructions as it takes: at 16 bits the GPU has 28
// an element before memory is no longer what it waits for. A thread has kAcross vectors of one row
// in flight, a block's width apart; their bias is asked for before them.
template <class T, class Act, int kAcross>
__global__ void __launch_bounds__(kThreads, (kLight<T, Act> ? FUSEDOPS_FULL_SM(kThreads) : 1))
    whole_rows_kernel(T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ bias,
                      unsigned rows, unsigned period) {
  constexpr int V = kLanes<T>;
  const unsigned p = blockIdx.x * (blockDim.x * kAcross) + threadIdx.x;
  const unsigned row = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const std::uint64_t first = (static_cast<std::uint64_t>(row) * period + p) * V;
  Vector<T> bias_in[kAcross], in[kAcross];
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) bias_in[k] = load(bias + (p + k * blockDim.x) * V);
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) in[k] = load(x + first + k * blockDim.x * V);
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) {
      Accumulator<T> b[V], out[V];
      widen(b, bias_in[k]);
      widen(out, in[k]);
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] = Act::template value<T>(out[i] + b[i]);
      store(y + first + k * blockDim.x * V, narrow<T>(out));
    }
  }
}

// Any number of columns. kInFlight loads are issued before the first is used.
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
          widen(out, in[k]);
#pragma unroll
          for (int i = 0; i < V; ++i) out[i] = Act::template value<T>(out[i] + b[i]);
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

inline bool is_narrow(std::int64_t size) { return size < (std::int64_t{1} << 31); }

template <class T, class Act>
gpu::Status launch_whole_rows(const BiasAct& call, T* y, const T* x, const T* bias,
                              gpu::Stream stream) {
  // Measured (H200, 64 MiB and more): as fast as a copy; the other way round 1 to 5 % slower.
  constexpr int kAcross = sizeof(T) == 2 ? 1 : 2;
  constexpr std::int64_t kMostY = 65535;
  const std::int64_t period = call.cols / kLanes<T>;
  const std::int64_t width = tile_width(ceil_div(period, kAcross), kThreads, gpu::kWarpSize);
  const std::int64_t height = kThreads / width;
  const std::int64_t groups = ceil_div(call.rows, height);
  const std::int64_t down = std::min(groups, kMostY);
  const dim3 grid(static_cast<unsigned>(ceil_div(period, width * kAcross)),
                  static_cast<unsigned>(down), static_cast<unsigned>(ceil_div(groups, down)));
  const dim3 block(static_cast<unsigned>(width), static_cast<unsigned>(height));
  return gpu::launch(&whole_rows_kernel<T, Act, kAcross>, grid, block, stream, y, x, bias,
                     static_cast<unsigned>(call.rows), static_cast<unsigned>(period));
}

template <class T, class Act>
gpu::Status launch_bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                            gpu::Stream stream) {
  constexpr int kSteps = 4;
  auto* out = static_cast<T*>(y);
  const auto* in = static_cast<const T*>(x);
  const auto* b = static_cast<const T*>(bias);
  if (!aligned(x) || !aligned(y)) {
    const std::int64_t elements = call.rows * call.cols;
    return gpu::launch(&unaligned_kernel<T, Act>, ceil_div(elements, kThreads * kPerThread),
                       dim3(kThreads), stream, out, in, b, elements, call.cols);
  }
  if (call.cols % kLanes<T> == 0 && aligned(bias) && is_narrow(call.rows) && is_narrow(call.cols)) {
    return launch_whole_rows<T, Act>(call, out, in, b, stream);
  }
  Tiling t = tile(call.rows, call.cols, bias, kLanes<T>, kThreads, gpu::kWarpSize);
  t = with_steps(t, t.vectors < kSmall ? 1 : kSteps);
  return gpu::launch(&bias_act_kernel<T, Act, kSteps>, t.blocks(), dim3(t.width, t.height), stream,
                     out, in, b, t);
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

}  // namespace bias_act_detail

using namespace bias_act_detail;

gpu::Status bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                     gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    return with_activation<typename decltype(type)::T>(call, y, x, bias, stream);
  });
}

}  // namespace fusedops::kernels
