#include "kernels/dispatch.cuh"
#include "kernels/tiling.h"
#include "kernels/vector_add.h"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace vector_add_detail {

constexpr int kPerThread = 2;   // vectors of each input in flight
constexpr int kUnaligned = 16;  // elements of a thread of the unaligned kernel

template <class T>
__device__ __forceinline__ Accumulator<T> combine(Accumulator<T> gamma, T a, T b) {
  return fma(gamma, widen(a), widen(b));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    vector_add_kernel(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b,
                      Accumulator<T> gamma, std::int64_t elements) {
  constexpr int V = kLanes<T>;
  const std::int64_t vectors = elements / V;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
  Vector<T> left[kPerThread], right[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const std::int64_t at = first + k * kThreads;
    if (at < vectors) {
      left[k] = load(a + at * V);
      right[k] = load(b + at * V);
    }
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const std::int64_t at = first + k * kThreads;
    if (at < vectors) {
      Accumulator<T> sum[V];
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] = combine<T>(gamma, left[k].lane[i], right[k].lane[i]);
      store(out + at * V, narrow<T>(sum));
    }
  }
  // The last elements, fewer than a vector.
  const std::int64_t at = vectors * V + threadIdx.x;
  if (blockIdx.x == 0 && at < elements) out[at] = narrow<T>(combine<T>(gamma, a[at], b[at]));
}

// For pointers off 16 bytes: neighbouring threads take neighbouring elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    unaligned_kernel(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b,
                     Accumulator<T> gamma, std::int64_t elements) {
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnaligned) + threadIdx.x;
#pragma unroll 4
  for (int k = 0; k < kUnaligned; ++k, at += kThreads) {
    if (at < elements) out[at] = narrow<T>(combine<T>(gamma, a[at], b[at]));
  }
}

template <class T>
gpu::Status launch_vector_add(std::int64_t elements, double gamma, void* out, const void* a,
                              const void* b, gpu::Stream stream) {
  const bool fast = aligned(out) && aligned(a) && aligned(b);
  const std::int64_t per_block = kThreads * (fast ? kPerThread * kLanes<T> : kUnaligned);
  auto* kernel = fast ? &vector_add_kernel<T> : &unaligned_kernel<T>;
  return gpu::launch(kernel, ceil_div(elements, per_block), dim3(kThreads), stream,
                     static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
                     static_cast<Accumulator<T>>(gamma), elements);
}

}  // namespace vector_add_detail

using namespace vector_add_detail;

gpu::Status vector_add(DType dtype, std::int64_t elements, double gamma, void* out, const void* a,
                       const void* b, gpu::Stream stream) {
  return with_type(dtype, [&](auto type) {
    return launch_vector_add<typename decltype(type)::T>(elements, gamma, out, a, b, stream);
  });
}

}  // namespace fusedops::kernels
