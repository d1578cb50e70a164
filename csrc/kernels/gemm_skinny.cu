// y = f(x weight + bias), or y = v1 f(v2) of the halves of v = x weight + bias: x is [rows, inner]
// with few rows, weight [inner, cols], y [rows, cols]. Here a kernel is chosen:
// gemm_skinny_columns.cuh for a weight with contiguous columns; for one with contiguous rows
// gemm_skinny_layers.cuh (16 bits) or gemm_skinny_rows.cuh (int8).
#include <algorithm>

#include "kernels/gemm_skinny_columns.cuh"
#include "kernels/gemm_skinny_layers.cuh"
#include "kernels/gemm_skinny_rows.cuh"
#include "kernels/tiling.h"
#include "platform/device.h"

namespace fusedops::kernels {
namespace gemm_skinny_detail {

// Up to so many columns of a weight, all blocks run at once: two on a multiprocessor, with many
// loads each.
constexpr std::int64_t kAtOnce = 4224;

std::int64_t columns_of(const GemmSkinny& call) { return call.gated ? 2 * call.cols : call.cols; }

// Whether this kernel beats the BLAS library, as measured: for an int8 weight, for which the
// library has no kernel; for a weight by columns that is so narrow that the time until its first
// load counts (H200); and for a large weight whose rows are whole lines of memory (H100).
bool pays(const GemmSkinny& call) {
  constexpr std::int64_t kLine = 64, kLeastInner = 4096, kLeastColumns = 2048;
  if (call.groups) return true;
  if (call.by_columns) return columns_of(call) <= kAtOnce;
  const bool large = call.inner >= kLeastInner && columns_of(call) >= kLeastColumns;
  return call.rows <= kRows && call.pitch % kLine == 0 && (large || !gpu::kMeasured) &&
         gpu::major_capability() == 9;
}

// How many blocks share the sums of some columns, up to `each`, so that the GPU has up to `most`.
unsigned blocks_each(const GemmSkinny& call, std::int64_t clusters, std::int64_t most,
                     unsigned each) {
  constexpr std::int64_t kLeast = 512;  // rows of the weight for a block
  unsigned blocks = 1;
  while (blocks < each && clusters * blocks * 2 <= most && call.inner >= kLeast * blocks * 2) {
    blocks *= 2;
  }
  return gpu::has_clusters() ? blocks : 1;
}

ProblemShape shape_of(const GemmSkinny& call, int places) {
  const int size = call.groups ? 1 : 2;
  return {call.cols,
          columns_of(call),
          call.gated ? call.cols : places / 2,
          static_cast<unsigned>(call.pitch * size),
          static_cast<int>(call.rows),
          static_cast<int>(call.inner),
          call.groups ? static_cast<int>(call.inner / call.groups) : 0,
          call.gated,
          call.activation};
}

// So many clusters of `each` blocks. Blocks alone are no clusters: they have no one to send to.
overlap::Blocks blocks_of(std::int64_t clusters, unsigned each, int threads, int shared) {
  return {dim3(static_cast<unsigned>(clusters * each)), dim3(threads), each > 1 ? each : 0,
          static_cast<unsigned>(shared)};
}

template <class T, class Kernel>
gpu::Status launch_blocks(Kernel kernel, const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                          int places, unsigned cluster, gpu::Stream stream) {
  const auto blocks = blocks_of(ceil_div(columns_of(call), places), cluster, kBlock, 0);
  return overlap::launch(kernel, blocks, stream, shape_of(call, places), static_cast<T*>(tensors.y),
                         static_cast<const T*>(tensors.x), tensors.weight,
                         static_cast<const T*>(tensors.bias),
                         static_cast<const float*>(tensors.scales));
}

// Launches the blocks; `alone` if each can have a multiprocessor of its own. They ask for more than
// half of its shared memory then, or two would often share one and be late.
template <class L>
gpu::Status launch_layers(const GemmSkinny& call, const GemmSkinnyTensors& tensors, int processors,
                          bool alone, gpu::Stream stream) {
  using T = typename L::T;
  int half = 0;
  gpu::Status status = alone ? gpu::shared_memory(2, half) : gpu::kSuccess;
  const int shared = alone ? std::max(L::kShared, half + 1) : L::kShared;
  if (status == gpu::kSuccess) status = gpu::allow_shared(by_layers<L>, shared);
  if (status != gpu::kSuccess) return status;
  const std::int64_t clusters = ceil_div(columns_of(call), L::kPlaces);
  const unsigned cluster = blocks_each(call, clusters, processors, 2);
  const auto blocks = blocks_of(clusters, cluster, L::kThreads, shared);
  return overlap::launch(by_layers<L>, blocks, stream, shape_of(call, L::kPlaces),
                         static_cast<T*>(tensors.y), static_cast<const T*>(tensors.x),
                         tensors.weight, static_cast<const T*>(tensors.bias));
}

// Chooses the layout, as measured on an H100. Narrow blocks are more, wide ones read longer parts
// of rows. Where blocks share a multiprocessor, fewer bytes of each need to be on their way.
template <class T>
gpu::Status launch_layers(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                          gpu::Stream stream) {
  using Narrow = Layers<T, 4, 128, 4>;
  using Wide = Layers<T, 8, 64, 4>;
  using NarrowShared = Layers<T, 4, 128, 3>;
  using WideShared = Layers<T, 8, 64, 3>;
  int processors = 0;
  const gpu::Status status = gpu::multiprocessors(processors);
  if (status != gpu::kSuccess) return status;
  const std::int64_t narrow = ceil_div(columns_of(call), Narrow::kPlaces);
  const std::int64_t wide = ceil_div(columns_of(call), Wide::kPlaces);
  // Half of a narrow block's columns, as in a gated call, are no whole line.
  if (!call.gated && narrow <= processors) {
    return launch_layers<Narrow>(call, tensors, processors, true, stream);
  }
  if (!call.gated && narrow * 2 <= processors * 3) {
    return launch_layers<NarrowShared>(call, tensors, processors, false, stream);
  }
  if (wide <= processors) return launch_layers<Wide>(call, tensors, processors, true, stream);
  return launch_layers<WideShared>(call, tensors, processors, false, stream);
}

template <class T, bool kInt8>
gpu::Status launch_skinny(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                          gpu::Stream stream) {
  const auto launch = [&](auto kernel, int places, unsigned cluster) {
    return launch_blocks<T>(kernel, call, tensors, places, cluster, stream);
  };
  if constexpr (kInt8) {
    using L = ByRows<T>;
    if (!call.by_columns) {
      const std::int64_t clusters = ceil_div(columns_of(call), L::kPlaces);
      constexpr std::int64_t kMany = 192;
      return launch(by_rows<L>, L::kPlaces, blocks_each(call, clusters, kMany, 8));
    }
    using Short = ByColumns<T, true, 1, 2>;
    if (columns_of(call) > kAtOnce) return launch(by_columns<Short>, Short::kPlaces, 1);
  } else if (!call.by_columns) {
    return launch_layers<T>(call, tensors, stream);
  }
  using Low = ByColumns<T, kInt8, 2, 1>;
  if (call.rows <= kRows) return launch(by_columns<Low>, Low::kPlaces, 1);
  using Long = ByColumns<T, kInt8, 2, 2>;
  return launch(by_columns<Long>, Long::kPlaces, 1);
}

template <class T>
gpu::Status launch_skinny(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                          gpu::Stream stream) {
  return call.groups ? launch_skinny<T, true>(call, tensors, stream)
                     : launch_skinny<T, false>(call, tensors, stream);
}

// Whether a chunk of the weight's rows always lies within one group.
bool takes_groups(const GemmSkinny& call) {
  constexpr std::int64_t kChunk = 64;
  return call.groups <= 1 ||
         (call.inner % call.groups == 0 && call.inner / call.groups % kChunk == 0);
}

}  // namespace gemm_skinny_detail

bool gemm_skinny_takes(const GemmSkinny& call, const GemmSkinnyTensors& tensors) {
  using namespace gemm_skinny_detail;
  const std::int64_t vector = call.groups ? kVectorBytes : kVectorBytes / 2;  // elements
  const bool whole =
      call.by_columns ? call.inner % vector == 0 : call.inner % 8 == 0 && call.cols % 8 == 0;
  return pays(call) && (call.dtype == DType::float16 || call.dtype == DType::bfloat16) &&
         call.rows > 0 && call.rows <= kSkinnyRows && call.cols > 0 && call.inner > 0 &&
         call.inner < (1 << 28) && whole && call.pitch % vector == 0 && call.pitch < (1 << 28) &&
         takes_groups(call) && aligned(tensors.x) && aligned(tensors.weight) &&
         gpu::has_tensor_cores();
}

gpu::Status gemm_skinny(const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                        gpu::Stream stream) {
  using namespace gemm_skinny_detail;
  return call.dtype == DType::float16 ? launch_skinny<half>(call, tensors, stream)
                                      : launch_skinny<bfloat16>(call, tensors, stream);
}

TORCHWHEEL_EXPORT(gemm_skinny_takes)
TORCHWHEEL_EXPORT(gemm_skinny)

}  // namespace fusedops::kernels
