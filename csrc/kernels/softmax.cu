// y = softmax(scale scores + alibi + mask) over the keys: scores and y are [batch, heads, queries,
// keys]. Here is the choice between kernels: rows in registers (softmax_resident.cuh), the next row
// on its way meanwhile (softmax_prefetched.cuh), and any others (softmax_streamed.cu).
#include <algorithm>

#include "kernels/softmax_prefetched.cuh"
#include "kernels/vector.cuh"
#include "platform/device.h"

namespace fusedops::kernels {
namespace softmax_detail {

constexpr std::int64_t kMostKeys = 1 << 15;  // of a block

// How the threads of a cluster share the row of a call, with schedule S.
template <class S>
row_cluster::ClusterLayout shared_by(const Softmax& call) {
  const std::int64_t vectors = call.keys * element_size(call.dtype) / kVectorBytes;
  return row_cluster::layout_of<S>(vectors, S::kPacked ? 0 : 1);
}

// The same with ClusterRowsOf. A row that is too long for it has more threads.
inline row_cluster::ClusterLayout shared_by_cluster_rows(const Softmax& call) {
  return call.dtype == DType::float32 && is_plain(call)
             ? shared_by<ClusterRowsOf<float, false>>(call)
             : shared_by<ClusterRowsOf<half, false>>(call);
}

inline bool is_longest(const Softmax& call) {
  return shared_by_cluster_rows(call).threads > ClusterRows<8>::kMost;
}

// Not shared are short rows, those of GPUs without clusters, and those of calls that would leave
// most of the GPU idle, which lie in the L2 cache, where a second read is cheap.
inline bool is_shared(const Softmax& call) {
  constexpr std::int64_t kLeast = 64;  // blocks; measured (H100)
  const bool heavy = call.dtype == DType::float32 && call.mask.type != ScoreBias::Type::none;
  if (call.keys <= (heavy ? kMostKeys / 2 : kMostKeys) || !is_narrow(call.keys) ||
      !gpu::has_clusters()) {
    return false;
  }
  const bool longest = is_longest(call);
  if (longest && !is_plain(call)) return false;  // they gain little by their many kernels
  const auto by = longest ? shared_by<LongestRows>(call) : shared_by_cluster_rows(call);
  const std::int64_t blocks = call.rows() * by.cluster;
  return by.threads <= LongestRows::kMost && blocks >= kLeast && blocks <= gpu::kMostBlocks;
}

// How many heads the same threads compute one after another, because they share a mask's row. Only
// as many as leave enough work for all multiprocessors.
inline unsigned together(const Softmax& call) {
  constexpr std::int64_t kMany = 1 << 23, kLong = 8192, kLeastUnits = 128;
  if (!shares_mask(call) || call.rows() * call.keys < kMany) return 1;
  unsigned heads = call.keys > kLong ? 8 : 4;
  while (heads > 1 && (call.heads % heads != 0 || call.rows() / heads < kLeastUnits)) heads /= 2;
  return heads;
}

template <class T>
RowBlock block_of(const Softmax& call, int vectors) {
  constexpr std::int64_t kThreads = 128;
  const bool edges = call.keys % kLanes<T> != 0 || call.causal || call.window > 0;
  const std::int64_t threads = ceil_div(call.keys, kLanes<T> * vectors);
  return row_block(edges ? std::max<std::int64_t>(threads, 2 * kLanes<T>) : threads, kThreads);
}

// Whether the kernels of this file support the call, which needs no scratch memory then. They mark
// missing elements by a score of -inf, which works only with a positive scale.
inline bool fits(const Softmax& call) {
  constexpr std::int64_t kMostRows = 1 << 30;
  constexpr double kLeastScale = 1e-20;
  return call.dtype != DType::float64 && call.rows() <= kMostRows &&
         (call.keys <= kMostKeys || is_shared(call)) && call.scale >= kLeastScale &&
         (call.mask.type == ScoreBias::Type::none || call.mask.key == 1) &&
         (call.alibi.type == ScoreBias::Type::none || call.slopes);
}

template <class T>
Masking masking_of(const Softmax& call) {
  if (is_plain(call)) return call.causal || call.window > 0 ? Masking::ragged : Masking::plain;
  const ScoreBias& mask = call.mask;
  if (mask.type == ScoreBias::Type::none) return Masking::boolean;
  const bool like = mask.type == ScoreBias::Type::like_scores;
  const bool boolean = mask.type == ScoreBias::Type::boolean;
  const std::int64_t size = boolean ? 1 : like ? sizeof(T) : sizeof(float);
  const std::int64_t at_once = std::min<std::int64_t>(kLanes<T> * size, kVectorBytes) / size;
  // Whether the mask is aligned wherever the scores are.
  const auto follows = [&](std::int64_t count, std::int64_t stride, std::int64_t of_scores) {
    return count == 1 || (stride - of_scores) % at_once == 0;
  };
  const std::int64_t head = call.queries * call.keys;
  const bool in_line = reinterpret_cast<std::uintptr_t>(mask.data) % (at_once * size) == 0 &&
                       follows(call.batch, mask.batch, call.heads * head) &&
                       follows(call.heads, mask.head, head) &&
                       follows(call.queries, mask.query, call.keys);
  if (!in_line) return Masking::any;
  return boolean ? Masking::boolean : like ? Masking::like_scores : Masking::float32;
}

template <class T>
struct Choice {
  SoftmaxKernel<T> kernel;
  int vectors;  // vectors of a thread
};

template <class T>
Choice<T> choose(const Softmax& call, Masking masking) {
  using Short = ShortRows;
  using Long = LongRows<T>;
  if (masking > Masking::ragged) {
    if constexpr (sizeof(T) == 4) {
      if (call.keys > kMostKeys / 2) {
        return {&softmax_kernel<T, Long, Masking::any>, 8};
      }
    }
    return {&softmax_kernel<T, Short, Masking::any>, 4};
  }
  constexpr std::int64_t kShort = 4096, kFew = 256;
  constexpr std::int64_t kMostOfShort = std::int64_t{Short::kMost} * Short::kVectors * kLanes<T>;
  if (call.keys > (call.rows() > kFew ? kShort : kMostOfShort)) {
    return {&softmax_kernel<T, Long, Masking::ragged>, 8};
  }
  return {masking == Masking::plain ? &softmax_kernel<T, Short, Masking::plain>
                                    : &softmax_kernel<T, Short, Masking::ragged>,
          4};
}

template <class T>
gpu::Status launch_resident(const Softmax& call, Masking masking, void* y, const void* scores,
                            gpu::Stream stream) {
  const Choice<T> choice = choose<T>(call, masking);
  const RowBlock block = block_of<T>(call, choice.vectors);
  const SoftmaxParams params = params_of(call, shares_mask(call), together(call));
  const std::int64_t units = call.rows() / params.together;
  return overlap::launch(choice.kernel, block.blocks(units), block.dim(), stream,
                         static_cast<T*>(y), static_cast<const T*>(scores),
                         static_cast<unsigned>(units), params);
}

// Launches a kernel for shared rows.
template <class T>
gpu::Status launch_shared(const Softmax& call, Masking masking, void* y, const void* scores,
                          gpu::Stream stream) {
  using Alone = ClusterRowsOf<T, false>;
  using Masked = ClusterRowsOf<T, true>;
  const auto launch = [&](SoftmaxKernel<T> kernel, const row_cluster::ClusterLayout& by) {
    return row_cluster::launch(kernel, call.rows(), by, stream, static_cast<T*>(y),
                               static_cast<const T*>(scores), static_cast<unsigned>(call.rows()),
                               params_of(call, shares_mask(call), 1));
  };
  if (is_longest(call)) {
    return launch(&softmax_kernel<T, LongestRows, Masking::ragged>, shared_by<LongestRows>(call));
  }
  const auto kernel = [&]() -> SoftmaxKernel<T> {
    switch (masking) {
      case Masking::plain:
        if (call.keys % kLanes<T> == 0) return &softmax_kernel<T, Alone, Masking::plain>;
        [[fallthrough]];
      case Masking::ragged:
        return &softmax_kernel<T, Alone, Masking::ragged>;
      case Masking::boolean:
        return &softmax_kernel<T, Masked, Masking::boolean>;
      case Masking::float32:
        if constexpr (sizeof(T) == 2) return &softmax_kernel<T, Masked, Masking::float32>;
        [[fallthrough]];
      case Masking::like_scores:
        return &softmax_kernel<T, Masked, Masking::like_scores>;
      case Masking::any:
        break;
    }
    return &softmax_kernel<T, Masked, Masking::any>;
  };
  return launch(kernel(), shared_by_cluster_rows(call));
}

template <class T>
gpu::Status launch_softmax(const Softmax& call, void* y, const void* scores, gpu::Stream stream) {
  const Masking masking = masking_of<T>(call);
  if (is_shared(call)) return launch_shared<T>(call, masking, y, scores, stream);
  if (masking > Masking::ragged && masking < Masking::any && call.keys % kLanes<T> == 0) {
    const PrefetchedKernel<T> prefetched = prefetched_for<T>(call, masking);
    int room = 0, processors = 0;
    gpu::Status status = gpu::shared_memory(1, room);
    if (status == gpu::kSuccess) status = gpu::multiprocessors(processors);
    if (status != gpu::kSuccess) return status;
    if (prefetched.block.threads <= ShortRows::kMost && prefetched.shared <= room) {
      const unsigned run = run_of<T>(call, masking, prefetched.block.threads, processors);
      return launch_prefetched(call, prefetched, masking, run, y, scores, stream);
    }
  }
  return launch_resident<T>(call, masking, y, scores, stream);
}

}  // namespace softmax_detail

using namespace softmax_detail;

std::int64_t softmax_scratch(const Softmax& call) {
  return fits(call) ? 0 : softmax_streamed_scratch(call);
}

gpu::Status softmax(const Softmax& call, void* y, const void* scores, void* scratch,
                    gpu::Stream stream) {
  if (!aligned(y) || !aligned(scores)) return gpu::kInvalidValue;
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (sizeof(T) < 8) {
      if (fits(call)) return launch_softmax<T>(call, y, scores, stream);
    }
    return softmax_streamed(call, y, scores, scratch, stream);
  });
}

TORCHWHEEL_EXPORT(softmax_scratch)
TORCHWHEEL_EXPORT(softmax)

}  // namespace fusedops::kernels
