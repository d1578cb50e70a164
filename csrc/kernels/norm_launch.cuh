// Which kernel a norm runs on, and its schedule. Both depend on the length of the rows alone, so a
// row's bits do not depend on the number of rows.
#pragma once

#include <type_traits>

#include "kernels/norm_cluster.cuh"
#include "kernels/norm_form.cuh"
#include "kernels/norm_kernels.cuh"
#include "kernels/norm_longest.cuh"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/device.h"

namespace fusedops::kernels::norm_detail {

// The schedules of a formula, in the order of the rows' length. Few vectors a thread and many
// threads finish soonest. But memory is busy only if each multiprocessor has 64 KB in flight, and
// with 64 registers a thread it holds 1024 threads. So longer rows have 4 vectors a thread, or 2 of
// each input of a sum. Measured on an H200.
template <class F>
struct Schedules {
  static constexpr bool kHalf = sizeof(typename F::T) == 2;
  static constexpr bool kSums = F::kAdds != Adds::nothing;
  static constexpr bool kHeavy = kHalf && F::kCentered;  // much arithmetic for its bytes
  template <bool kCondition, class A, class B>
  using If = std::conditional_t<kCondition, A, B>;

  using Tiny = Schedule<2, warp::kWidth, 2>;
  using Small =
      If<kSums, If<kHalf, Schedule<2, 1024, 2>, Schedule<1, 1024, 1>>,
         If<kHeavy, WithBlocks<6, Schedule<4, 128, 4>>, WithBlocks<4, Schedule<2, 256, 2>>>>;
  using Middle = If<kSums, If<kHalf, Small, Schedule<2, 1024, 1>>,
                    WithBlocks<2, Schedule<4, 512, kHeavy ? 1 : 4>>>;
  using Large = If<kSums, Schedule<4, 1024, 1>,
                   If<kHalf, StayPacked<Schedule<8, 1024, 1>>, Schedule<8, 1024, 1>>>;
  // In clusters sums are in registers, as float32; what is no sum stays packed there.
  template <class S>
  using InBlocks = InClusters<If<kSums, S, StayPacked<S>>>;
  using LongCluster = KeepsColumns<InBlocks<WithBlocks<2, Schedule<8, 256, 0>>>>;
  using Cluster = If<kSums && F::kCentered,
                     KeepsColumns<InBlocks<WithBlocks<2, Schedule<4, 256, 0>>>>, LongCluster>;
  // And of whole vectors alone, as kernels take room. Sums of longer rows are left to
  // norm_longest.cuh, which is as fast.
  using LargeCluster = If<kSums, LongCluster,
                          InBlocks<If<F::kCentered, Schedule<16, 512, 2>, Schedule<8, 1024, 2>>>>;
  using Shifted = If<kSums, Schedule<2, 1024, 0>, Schedule<4, 1024, 1>>;
};

// Whether a row of so many vectors fits into schedule S.
template <class S>
bool fits(std::int64_t vectors) {
  return vectors <=
         std::int64_t{S::kVectors} * S::kMost * (S::kClusters ? cluster::kMostBlocks : 1);
}

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

template <class F, class S, RowLayout kLayout>
gpu::Status launch_rows(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using T = typename F::T;
  const std::int64_t vectors = call.cols / kLanes<T>;
  const std::int64_t threads = ceil_div(vectors, S::kVectors);
  const RowBlock block = S::kNarrow ? row_block(threads, kNarrowBlock)
                                    : row_block(std::max<std::int64_t>(threads, warp::kWidth), 1);
  return overlap::launch(&row_kernel<F, S, kLayout>, block.blocks(call.rows), block.dim(), stream,
                         typed<T>(tensors), call.rows, static_cast<int>(call.cols),
                         constants_of<float>(call));
}

// Uses the first schedule that the row fits.
template <class F, RowLayout kLayout, class S, class... Longer>
gpu::Status launch_in_clusters(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using T = typename F::T;
  const std::int64_t vectors = call.cols / kLanes<T>;
  if constexpr (sizeof...(Longer) > 0) {
    if (!fits<S>(vectors)) return launch_in_clusters<F, kLayout, Longer...>(call, tensors, stream);
  }
  constexpr int kWanted = 128;  // threads of a block, where there is a choice
  auto layout = row_cluster::layout_of<S>(vectors, 0, kWanted);
  if (F::kCentered) {
    const std::int64_t blocks = ceil_div(vectors, std::int64_t{S::kVectors} * S::kMost);
    layout.cluster = static_cast<unsigned>(std::max(blocks, row_cluster::kLeastBlocks));
    layout.threads = S::kMost;
  }
  layout.shared = InShared<F, S, kLayout>::bytes(layout.threads);
  return row_cluster::launch_queue(&norm_cluster_kernel<F, S, kLayout>, call.rows, layout,
                                   static_cast<std::int32_t*>(tensors.scratch), stream,
                                   typed<T>(tensors), static_cast<int>(call.cols),
                                   constants_of<float>(call));
}

// The block of a kernel for rows of any length, with schedule S.
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

// general_norm takes any call. layer_norm takes calls with both bias and residual or neither.
// rms_norm takes calls without a bias. Each is compiled in a file of its own.
gpu::Status general_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);
gpu::Status layer_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);
gpu::Status rms_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream);

// Whether a row fits into a schedule of a block.
template <class F>
bool fits_block(const Norm& call) {
  using By = Schedules<F>;
  constexpr std::int64_t V = kLanes<typename F::T>;
  const std::int64_t vectors = call.cols / V;
  return call.cols % V == 0
             ? fits<typename By::Large>(vectors)
             : fits<typename By::Tiny>(vectors) || fits<typename By::Shifted>(vectors);
}

// Whether the threads of a cluster share a row: where it fits into no schedule of a block, and
// where that was measured to be faster (H200).
template <class F>
bool in_clusters(const Norm& call) {
  using By = Schedules<F>;
  constexpr std::int64_t V = kLanes<typename F::T>;
  constexpr std::int64_t kLong = !By::kSums ? 8192 : By::kHalf ? 2048 : 4096, kLongOdd = 4096;
  const std::int64_t vectors = call.cols / V;
  const bool whole = call.cols % V == 0;
  const bool fits_cluster =
      whole ? fits<typename By::LargeCluster>(vectors) : fits<typename By::LongCluster>(vectors);
  // The GPU is asked last: short rows are many calls.
  return (!fits_block<F>(call) ||
          (F::kCentered && vectors >= (whole ? kLong : std::min(kLong, kLongOdd)))) &&
         fits_cluster && gpu::has_clusters();
}

// Uses the first schedule that the row fits.
template <class F, class S, class... Longer>
gpu::Status launch_whole(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  if (fits<S>(call.cols / kLanes<typename F::T>)) {
    return launch_rows<F, S, RowLayout::whole>(call, tensors, stream);
  }
  if constexpr (sizeof...(Longer) > 0) {
    return launch_whole<F, Longer...>(call, tensors, stream);
  } else {
    return general_norm(call, tensors, stream);
  }
}

template <class F>
gpu::Status launch_longest(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using T = typename F::T;
  const auto kernel = call.cols % kLanes<T> == 0 ? &norm_longest_kernel<F, RowLayout::whole>
                                                 : &norm_longest_kernel<F, RowLayout::shifted>;
  const auto layout = row_cluster::layout(call.cols / kLanes<T>, F::kAdds == Adds::nothing ? 1 : 2,
                                          64 * row_cluster::kKiB);
  return row_cluster::launch_queue(kernel, call.rows, layout, nullptr, stream, typed<T>(tensors),
                                   call.cols, constants_of<float>(call), layout.held);
}

template <class F>
gpu::Status launch_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using By = Schedules<F>;
  using T = typename F::T;
  constexpr int V = kLanes<T>;
  if (in_clusters<F>(call)) {
    using Short = typename By::Cluster;
    using Long = typename By::LongCluster;
    return call.cols % V == 0
               ? launch_in_clusters<F, RowLayout::whole, Short, Long, typename By::LargeCluster>(
                     call, tensors, stream)
               : launch_in_clusters<F, RowLayout::shifted, Short, Long>(call, tensors, stream);
  }
  if (!fits_block<F>(call) && is_narrow(call.cols) && gpu::has_clusters()) {
    return launch_longest<F>(call, tensors, stream);
  }
  if (call.cols % V == 0) {
    return launch_whole<F, typename By::Tiny, typename By::Small, typename By::Middle,
                        typename By::Large>(call, tensors, stream);
  }
  const std::int64_t vectors = call.cols / V;
  return fits<typename By::Tiny>(vectors) || !fits<typename By::Shifted>(vectors)
             ? general_norm(call, tensors, stream)
             : launch_rows<F, typename By::Shifted, RowLayout::shifted>(call, tensors, stream);
}

// Takes every type except float64.
template <bool kCentered, Adds kAdds>
gpu::Status launch_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (sizeof(T) < sizeof(double)) {
      return launch_norm<Formula<T, kCentered, kAdds>>(call, tensors, stream);
    } else {
      return general_norm(call, tensors, stream);
    }
  });
}

}  // namespace fusedops::kernels::norm_detail
