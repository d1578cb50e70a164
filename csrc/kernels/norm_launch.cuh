// Which kernel a norm runs on, by the length of its rows.
#pragma once

#include "kernels/dispatch.cuh"
#include "kernels/norm_general.cuh"
#include "kernels/norm_row.cuh"
#include "kernels/norm_shapes.cuh"
#include "kernels/row_block.h"

namespace fusedops::kernels::norm_detail {

template <class T>
Tensors<T> typed(const NormTensors& t) {
  const auto in = [](const void* data) { return static_cast<const T*>(data); };
  return {in(t.x),    in(t.bias),           in(t.residual),        in(t.gamma),
          in(t.beta), static_cast<T*>(t.y), static_cast<T*>(t.sum)};
}

template <class A>
Constants<A> constants_of(const Norm& call) {
  return {static_cast<A>(call.cols), static_cast<A>(1.0 / static_cast<double>(call.cols)),
          static_cast<A>(call.eps)};
}

template <class F, class S, Rows kRows>
gpu::Status launch_rows(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using T = typename F::T;
  const std::int64_t vectors = call.cols / kLanes<T>;
  const std::int64_t cluster = S::kClusters ? blocks_of_row<S>(vectors) : 1;
  const std::int64_t threads = ceil_div(vectors, S::kVectors * cluster);
  const RowBlock block = S::kNarrow ? row_block(threads, kNarrowBlock)
                                    : row_block(std::max<std::int64_t>(threads, warp::kWidth), 1);
  const std::int64_t blocks = block.blocks(call.rows) * cluster;
  if (blocks > gpu::kMostBlocks) return gpu::kInvalidValue;
  return overlap::launch_clusters(&row_kernel<F, S, kRows>, dim3(static_cast<unsigned>(blocks)),
                                  block.dim(), static_cast<unsigned>(cluster), stream,
                                  typed<T>(tensors), call.rows, static_cast<int>(call.cols),
                                  constants_of<float>(call));
}

// The block of the kernels for rows of any length, of shape S.
template <class T, class S>
RowBlock any_block(const Norm& call) {
  constexpr std::int64_t V = kLanes<T>, kLeast = 2 * V, kMost = S::kMost;
  const std::int64_t threads = ceil_div(call.cols / V, S::kVectors);
  return row_block(std::min(std::max(threads, kLeast), kMost), kNarrowBlock);
}

template <class F>
gpu::Status launch_general(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using T = typename F::T;
  const RowBlock block = any_block<T, General>(call);
  return overlap::launch(&general_kernel<F>, std::min(block.blocks(call.rows), gpu::kMostBlocks),
                         block.dim(), stream, typed<T>(tensors), call.rows, call.cols,
                         constants_of<Accumulator<T>>(call));
}

// For any call; for what adds both or neither of bias and residual; for what has no bias.
gpu::Status general_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);
gpu::Status layer_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);
gpu::Status rms_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);

// On the first of the shapes that the row fits.
template <class F, class S, class... Longer>
gpu::Status launch_whole(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  if (fits<S>(call.cols / kLanes<typename F::T>)) {
    return launch_rows<F, S, Rows::whole>(call, tensors, stream);
  }
  if constexpr (sizeof...(Longer) > 0) {
    return launch_whole<F, Longer...>(call, tensors, stream);
  } else {
    return general_norm(call, tensors, stream);
  }
}

template <class F>
gpu::Status launch_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using By = Shapes<F>;
  constexpr int V = kLanes<typename F::T>;
  if (call.cols % V == 0) {
    return launch_whole<F, typename By::Tiny, typename By::Small, typename By::Middle,
                        typename By::Large, typename By::Longest>(call, tensors, stream);
  }
  const std::int64_t vectors = call.cols / V;
  return fits<typename By::Tiny>(vectors) || !fits<typename By::Shifted>(vectors)
             ? general_norm(call, tensors, stream)
             : launch_rows<F, typename By::Shifted, Rows::shifted>(call, tensors, stream);
}

// For every type but float64.
template <bool kCentered, Adds kAdds>
gpu::Status launch_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (sizeof(T) < sizeof(double)) {
      return launch_norm<Form<T, kCentered, kAdds>>(call, tensors, stream);
    } else {
      return general_norm(call, tensors, stream);
    }
  });
}

}  // namespace fusedops::kernels::norm_detail
