#include "kernels/gemm_skinny_columns.cuh"
#include "kernels/gemm_skinny_rows.cuh"
#include "kernels/tiling.h"
#include "platform/device.h"

namespace fusedops::kernels {
namespace gemm_skinny_detail {

template <class T, bool kInt8, int kSteps, int kRowTiles = 2>
using Columns = ByColumns<T, kInt8, 1, kRowTiles, kSteps>;

// Up to so many columns of a weight, all blocks run at once: two on a multiprocessor, with many
// loads each.
constexpr std::int64_t kAtOnce = 4224;

std::int64_t columns_of(const GemmSkinny& call) { return call.gated ? 2 * call.cols : call.cols; }

// Whether this kernel beats the BLAS library, as measured on an H200: for an int8 weight, for which
// the library has no kernel, and for a weight so narrow that the time until its first load counts.
bool pays(const GemmSkinny& call) {
  return call.groups || (call.by_columns && columns_of(call) <= kAtOnce);
}

// How many blocks share the sums of some columns, so that there are enough blocks for the GPU.
unsigned blocks_each(const GemmSkinny& call, std::int64_t clusters) {
  constexpr std::int64_t kMany = 192, kLeast = 512;  // blocks; rows of the weight for one
  unsigned blocks = 1;
  while (blocks < 8 && clusters * blocks * 2 <= kMany && call.inner >= kLeast * blocks * 2) {
    blocks *= 2;
  }
  return gpu::has_clusters() ? blocks : 1;
}

template <class T, class Kernel>
gpu::Status launch_blocks(Kernel kernel, const GemmSkinny& call, const GemmSkinnyTensors& tensors,
                          int places, unsigned cluster, gpu::Stream stream) {
  const int size = call.groups ? 1 : 2;
  const Shape shape{call.cols,
                    columns_of(call),
                    call.gated ? call.cols : places / 2,
                    static_cast<unsigned>(call.pitch * size),
                    static_cast<int>(call.rows),
                    static_cast<int>(call.inner),
                    call.groups ? static_cast<int>(call.inner / call.groups) : 0,
                    call.gated,
                    call.activation};
  const std::int64_t clusters = ceil_div(columns_of(call), places);
  const dim3 grid(static_cast<unsigned>(clusters * cluster));
  return overlap::launch_clusters(kernel, grid, dim3(kBlock), cluster, stream, shape,
                                  static_cast<T*>(tensors.y), static_cast<const T*>(tensors.x),
                                  tensors.weight, static_cast<const T*>(tensors.bias),
                                  static_cast<const float*>(tensors.scales));
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
      return launch(by_rows<L>, L::kPlaces, blocks_each(call, clusters));
    }
    using Short = Columns<T, true, 1>;
    if (columns_of(call) > kAtOnce) return launch(by_columns<Short>, Short::kPlaces, 1);
  }
  using Low = Columns<T, kInt8, 2, 1>;
  if (call.rows <= kRows) return launch(by_columns<Low>, Low::kPlaces, 1);
  using Long = Columns<T, kInt8, 2>;
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
