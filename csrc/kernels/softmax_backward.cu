// grad_scores = scale y (grad - sum of grad y over the row), all [rows, keys]: the gradient of
// y = softmax(scale scores). Rows stay in registers, or lie in clusters, or are read twice.
#include <algorithm>

#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"
#include "kernels/row_cluster.cuh"
#include "kernels/softmax.h"
#include "kernels/tiling.h"
#include "kernels/unaligned.cuh"
#include "kernels/vector.cuh"
#include "platform/fetch.h"
#include "platform/overlap.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace softmax_backward_detail {

constexpr int kMostThreads = 1024;
constexpr int kVectors = 4;  // vectors of a thread, of each input

template <class T>
FUSEDOPS_DEVICE Accumulator<T> product(const Packed& grad, const Packed& y) {
  Accumulator<T> g[kLanes<T>], v[kLanes<T>], sum = 0;
  widen<T>(g, grad);
  widen<T>(v, y);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) sum = fma(g[i], v[i], sum);
  return sum;
}

// scale y (grad - dot)
template <class T>
FUSEDOPS_DEVICE Packed slope(const Packed& grad, const Packed& y, Accumulator<T> dot,
                             Accumulator<T> scale) {
  Accumulator<T> g[kLanes<T>], v[kLanes<T>];
  widen<T>(g, grad);
  widen<T>(v, y);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) v[i] = v[i] * scale * (g[i] - dot);
  return pack(narrow<T>(v));
}

// Where a row lies in the three tensors.
template <class T>
struct GradientRow {
  SpanOf<std::int64_t> span;
  std::int64_t first;  // index of the row's first element

  FUSEDOPS_DEVICE GradientRow(std::int64_t row, std::int64_t keys)
      : span(span_of<kLanes<T>>(row, keys)), first(row * keys) {}

  // The row's first vector in `data`.
  template <class U>
  FUSEDOPS_DEVICE auto* of(U* data) const {
    return as_packed(data + first + span.head);
  }
  FUSEDOPS_DEVICE bool has_edge() const { return static_cast<int>(threadIdx.x) < span.edges; }
  FUSEDOPS_DEVICE std::int64_t edge() const {
    return first + span.template edge<kLanes<T>>(static_cast<int>(threadIdx.x));
  }
};

// For rows that fit into registers; they stay packed there.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(T* __restrict__ out, const T* __restrict__ grad, const T* __restrict__ y,
                    std::int64_t rows, int keys, float scale) {
  __shared__ float shared[kMostWarps];
  overlap::wait();
  // Threads past the last row compute that row again.
  const GradientRow<T> row(
      min(static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, rows - 1), keys);
  Packed g[kVectors], v[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const unsigned at = threadIdx.x + k * blockDim.x;
    if (at < row.span.vectors) {
      g[k] = row.of(grad)[at];
      v[k] = row.of(y)[at];
    }
  }
  const float edge_g = row.has_edge() ? widen(grad[row.edge()]) : 0;
  const float edge_y = row.has_edge() ? widen(y[row.edge()]) : 0;
  float dot = edge_g * edge_y;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (threadIdx.x + k * blockDim.x < row.span.vectors) dot += product<T>(g[k], v[k]);
  }
  dot = reduce_row<Sum>(dot, static_cast<int>(blockDim.x), shared);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const unsigned at = threadIdx.x + k * blockDim.x;
    if (at < row.span.vectors) row.of(out)[at] = slope<T>(g[k], v[k], dot, scale);
  }
  if (row.has_edge()) out[row.edge()] = narrow<T>(edge_y * scale * (edge_g - dot));
}

// For long rows, in clusters (row_cluster.cuh).
template <class T>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(row_cluster::kMostThreads, 3)
    cluster_kernel(T* __restrict__ out, const T* __restrict__ grad, const T* __restrict__ y,
                   std::int64_t keys, float scale, unsigned held) {
  if constexpr (cluster::kSupported) {
    __shared__ float of_warp[1][kMostWarps];
    __shared__ row_cluster::ClusterExchange<1>::Room room;
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const GradientRow<T> row(cluster::number(), keys);
    const row_cluster::ClusterRow<2> part(places, held, static_cast<unsigned>(row.span.vectors));
    const Packed* const in[2] = {row.of(grad), row.of(y)};
    const row_cluster::ClusterExchange<1> blocks(room);
    row_cluster::open(blocks);
    part.start(in);
    cluster::wait();
    const bool has_edge = part.own < static_cast<unsigned>(row.span.edges);
    const std::int64_t edge =
        row.first + row.span.template edge<kLanes<T>>(static_cast<int>(part.own));
    const float edge_g = has_edge ? widen(grad[edge]) : 0, edge_y = has_edge ? widen(y[edge]) : 0;
    float dot[1] = {edge_g * edge_y};
    part.first_pass(in,
                    [&](unsigned, const Packed(&of)[2]) { dot[0] += product<T>(of[0], of[1]); });
    row_cluster::sum_of_block(dot, of_warp);
    blocks.send({{dot[0]}});
    blocks.receive(0);
    blocks.sum(dot);
    part.last_pass(in, [&](unsigned v, const Packed(&of)[2]) {
      row.of(out)[v] = slope<T>(of[0], of[1], dot[0], scale);
    });
    if (has_edge) out[edge] = narrow<T>(edge_y * scale * (edge_g - dot[0]));
  }
}

// For any row: a block takes one row at a time and reads it twice.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    streamed_kernel(T* __restrict__ out, const T* __restrict__ grad, const T* __restrict__ y,
                    std::int64_t rows, std::int64_t keys, Accumulator<T> scale) {
  using A = Accumulator<T>;
  __shared__ A shared[kMostWarps];
  overlap::wait();
  for (std::int64_t at = blockIdx.x; at < rows; at += gridDim.x) {
    std::int64_t number = at;
    fetch::make_opaque(
        number);  // ROCm 5.7's compiler fails on the parity of number x keys from row to row
    const GradientRow<T> row(number, keys);
    A dot = row.has_edge() ? widen(grad[row.edge()]) * widen(y[row.edge()]) : 0;
#pragma unroll 1
    for (std::int64_t v = threadIdx.x; v < row.span.vectors; v += blockDim.x) {
      dot += product<T>(row.of(grad)[v], row.of(y)[v]);
    }
    dot = reduce_row<Sum>(dot, static_cast<int>(blockDim.x), shared);
#pragma unroll 1
    for (std::int64_t v = threadIdx.x; v < row.span.vectors; v += blockDim.x) {
      row.of(out)[v] = slope<T>(row.of(grad)[v], row.of(y)[v], dot, scale);
    }
    if (row.has_edge()) {
      out[row.edge()] = narrow<T>(widen(y[row.edge()]) * scale * (widen(grad[row.edge()]) - dot));
    }
    __syncthreads();  // before shared memory is used again
  }
}

template <class T>
gpu::Status launch_backward(const SoftmaxBackward& call, void* grad_scores, const void* grad,
                            const void* y, gpu::Stream stream) {
  constexpr std::int64_t V = kLanes<T>, kNarrowBlock = 128;
  auto* const out = static_cast<T*>(grad_scores);
  const auto* const g = static_cast<const T*>(grad);
  const auto* const in = static_cast<const T*>(y);
  const std::int64_t needed = ceil_div(call.keys, V * kVectors);
  const std::int64_t threads =
      call.keys % V ? std::max(needed, 2 * V) : needed;  // a thread for each edge
  if constexpr (sizeof(T) < 8) {
    if (threads > kMostThreads && is_narrow(call.keys) && gpu::has_clusters()) {
      const auto layout = row_cluster::layout(call.keys / V, 2, 32 * row_cluster::kKiB);
      return row_cluster::launch(&cluster_kernel<T>, call.rows, layout, stream, out, g, in,
                                 call.keys, static_cast<float>(call.scale), layout.held);
    }
    if (threads <= kMostThreads) {
      const RowBlock block = row_block(threads, kNarrowBlock);
      return overlap::launch(&backward_kernel<T>, block.blocks(call.rows), block.dim(), stream, out,
                             g, in, call.rows, static_cast<int>(call.keys),
                             static_cast<float>(call.scale));
    }
  }
  constexpr std::int64_t kMostBlocks = 1 << 30, kLeast = warp::kWidth;
  const std::int64_t bounded = std::min<std::int64_t>(std::max(threads, kLeast), kMostThreads);
  return overlap::launch(&streamed_kernel<T>, std::min(call.rows, kMostBlocks),
                         row_block(bounded, 1).dim(), stream, out, g, in, call.rows, call.keys,
                         static_cast<Accumulator<T>>(call.scale));
}

}  // namespace softmax_backward_detail

using namespace softmax_backward_detail;

gpu::Status softmax_backward(const SoftmaxBackward& call, void* grad_scores, const void* grad,
                             const void* y, gpu::Stream stream) {
  if (!aligned(grad_scores) || !aligned(grad) || !aligned(y)) return gpu::kInvalidValue;
  return with_type(call.dtype, [&](auto type) {
    return launch_backward<typename decltype(type)::T>(call, grad_scores, grad, y, stream);
  });
}

TORCHWHEEL_EXPORT(softmax_backward)

}  // namespace fusedops::kernels
