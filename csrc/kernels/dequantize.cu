// result[i] = weight[i] scale[i / group]: the weight is int8, or 4 bits with two values a byte, and
// scale is float32. A matrix [rows, cols] is one run of elements, and a group some of its rows.
#include <algorithm>

#include "kernels/dequantize.h"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace dequantize_detail {

// Groups of `size` elements; each group has a scale.
struct Groups {
  std::int64_t size;
  std::int64_t last;  // number of the last group
  bool narrow;        // there are fewer than 2^31 elements
  Divisor by;

  Groups(std::int64_t elements, std::int64_t size)
      : size(size),
        last(elements / size - 1),
        narrow(elements <= kMost),
        by(std::min(size, kMost)) {}

  FUSEDOPS_DEVICE std::int64_t of(std::int64_t element) const {
    return narrow ? by.quotient(static_cast<unsigned>(element)) : element / size;
  }

 private:
  static constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
};

// The scales of a run of elements that is much shorter than 2^31.
struct Run {
  const float* scales;  // the scales from the first element's group on
  unsigned left;        // elements of the run in that group
  Divisor by;

  FUSEDOPS_DEVICE Run(const Groups& groups, const float* scale, std::int64_t start, int length)
      : by(groups.by) {
    const std::int64_t group = groups.of(start);
    scales = scale + group;
    left = static_cast<unsigned>(min(static_cast<long long>((group + 1) * groups.size - start),
                                     static_cast<long long>(length)));
  }

  FUSEDOPS_DEVICE unsigned group_of(unsigned element) const {
    return element < left ? 0 : 1 + by.quotient(element - left);
  }
  FUSEDOPS_DEVICE float scale_of(unsigned element) const { return scales[group_of(element)]; }
};

// The weight in the lowest bits. 2^23 plus an integer is a float with that integer in its lowest
// bits.
template <int kBits>
FUSEDOPS_DEVICE float value_of(unsigned bits) {
  constexpr unsigned kSign =
      1u << (kBits - 1);  // flipping it turns two's complement into an offset
  const unsigned counted = (bits & (2 * kSign - 1)) ^ kSign;
  return math::from_bits(0x4b000000u | counted) - (0x1p23f + kSign);
}

template <int kBits, int kBytes>
FUSEDOPS_DEVICE float value_of(const Granule<kBytes>& weights, int lane) {
  constexpr int kPerWord = 8 * static_cast<int>(sizeof(weights.word[0])) / kBits;
  return value_of<kBits>(weights.word[lane / kPerWord] >> (lane % kPerWord * kBits));
}

constexpr int kPerThread = 2;  // vectors of a thread in flight

template <class T, int kBits>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* to, const std::uint8_t* from, const float* scale, std::int64_t elements,
                      const Groups groups) {
  constexpr int V = kLanes<T>;
  constexpr int kLength = kThreads * kPerThread * V;
  using Weights = Granule<V * kBits / 8>;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * kLength;
  const Run run(groups, scale, start, kLength);
  const int here = static_cast<int>(min(static_cast<long long>(elements - start),
                                        static_cast<long long>(kLength))) /
                   V * V;
  const std::uint8_t* const weights = from + start * kBits / 8;
  overlap::wait_in_turn();

  Weights in[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int at = (k * kThreads + static_cast<int>(threadIdx.x)) * V;
    if (at < here) in[k] = *reinterpret_cast<const Weights*>(weights + at * kBits / 8);
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int at = (k * kThreads + static_cast<int>(threadIdx.x)) * V;
    if (at < here) {
      float out[V];
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] = value_of<kBits>(in[k], i);
      const unsigned group = run.group_of(at);
      if (group == run.group_of(at + V - 1)) {
        const float by = run.scales[group];
#pragma unroll
        for (int i = 0; i < V; ++i) out[i] *= by;
      } else {
#pragma unroll
        for (int i = 0; i < V; ++i) out[i] *= run.scale_of(at + i);
      }
      store(to + start + at, narrow<T>(out));
    }
  }
  // The last elements, fewer than a vector. Their groups are counted from the end.
  const std::int64_t at = elements / V * V + threadIdx.x;
  if (blockIdx.x == 0 && at < elements) {
    const unsigned bits = from[at * kBits / 8] >> (at * kBits % 8);
    const unsigned from_last = groups.by.quotient(static_cast<unsigned>(elements - 1 - at));
    to[at] = narrow<T>(value_of<kBits>(bits) * scale[groups.last - from_last]);
  }
}

template <class T, int kBits>
gpu::Status launch(const Dequantize& call, void* result, const void* weight, const float* scale,
                   gpu::Stream stream) {
  return overlap::launch(&dequantize_kernel<T, kBits>,
                         ceil_div(call.elements, kThreads * kPerThread * kLanes<T>), dim3(kThreads),
                         stream, static_cast<T*>(result), static_cast<const std::uint8_t*>(weight),
                         scale, call.elements, Groups(call.elements, call.group));
}

}  // namespace dequantize_detail

using namespace dequantize_detail;

gpu::Status dequantize(const Dequantize& call, void* result, const void* weight, const float* scale,
                       gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (std::is_same_v<T, double>) {
      return gpu::kInvalidValue;
    } else {
      return call.packed ? launch<T, 4>(call, result, weight, scale, stream)
                         : launch<T, 8>(call, result, weight, scale, stream);
    }
  });
}

TORCHWHEEL_EXPORT(dequantize)

}  // namespace fusedops::kernels
