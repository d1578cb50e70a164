#include <algorithm>

#include "kernels/softmax_prefetched.cuh"
#include "kernels/vector.cuh"
#include "platform/device.h"

namespace fusedops::kernels {
namespace softmax_detail {

constexpr std::int64_t kMostKeys = 1 << 15;  // of a block

// How many blocks hold a row: a cluster of them if it is too long for one; 0 if none can, or if few
// rows would leave most of the GPU idle. These lie in the L2 cache, where a second read is cheap.
inline std::int64_t blocks_of_row(const Softmax& call) {
  constexpr std::int64_t kMostBlocks = 8;  // of a cluster
  if (call.keys <= kMostKeys) return 1;
  if (!is_plain(call) || call.causal || call.window > 0 || !gpu::has_clusters()) return 0;
  std::int64_t blocks = 2;
  while (blocks * kMostKeys < call.keys) blocks *= 2;
  // Measured (H100).
  const std::int64_t least = call.dtype == DType::float32 && blocks > 2 ? 256 : 64;
  return blocks <= kMostBlocks && call.rows() * blocks >= least ? blocks : 0;
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
  const std::int64_t threads = ceil_div(call.keys, kLanes<T> * vectors * blocks_of_row(call));
  return row_block(edges ? std::max<std::int64_t>(threads, 2 * kLanes<T>) : threads, kThreads);
}

// Whether the kernels of this file support the call, which needs no scratch memory then. They mark
// missing elements by a score of -inf, which works only with a positive scale.
inline bool fits(const Softmax& call) {
  constexpr std::int64_t kMostRows = 1 << 30;
  constexpr double kLeastScale = 1e-20;
  return call.dtype != DType::float64 && call.rows() <= kMostRows && blocks_of_row(call) > 0 &&
         call.scale >= kLeastScale &&
         (call.mask.type == ScoreBias::Type::none || call.mask.key == 1) &&
         (call.alibi.type == ScoreBias::Type::none || call.slopes);
}

template <class T>
Form form_of(const Softmax& call) {
  if (is_plain(call)) return call.causal || call.window > 0 ? Form::ragged : Form::plain;
  const ScoreBias& mask = call.mask;
  if (mask.type == ScoreBias::Type::none) {
    return call.keys % kLanes<T> == 0 ? Form::boolean : Form::any;
  }
  const bool like = mask.type == ScoreBias::Type::like_scores;
  const bool boolean = mask.type == ScoreBias::Type::boolean;
  const std::int64_t size = boolean ? 1 : like ? sizeof(T) : sizeof(float);
  const std::int64_t at_once = std::min<std::int64_t>(kLanes<T> * size, kVectorBytes) / size;
  const bool in_line = reinterpret_cast<std::uintptr_t>(mask.data) % (at_once * size) == 0 &&
                       (mask.batch | mask.head | mask.query) % at_once == 0 &&
                       call.keys % kLanes<T> == 0;
  if (!in_line) return Form::any;
  return boolean ? Form::boolean : like ? Form::like_scores : Form::float32;
}

// 4 vectors a thread are fastest where a multiprocessor holds several blocks. At 16 bits, masks and
// alibi leave no registers for more, because they are added in float32. With 8, a multiprocessor
// has room for a second row of 32 Ki keys.
template <class T>
struct Choice {
  Kernel<T> kernel;
  int vectors;  // vectors of a thread
};

template <class T>
Choice<T> choose(const Softmax& call, Form form) {
  using Short = Shape<4, 1024>;
  using Long = std::conditional_t<sizeof(T) == 4, Shape<8, 1024>, Shape<8, 512, true, 2>>;
  using Cluster = std::conditional_t<sizeof(T) == 4, Shape<8, 1024, false, 1, true>,
                                     Shape<8, 512, true, 2, true>>;
  if (form > Form::ragged) {
    if constexpr (sizeof(T) == 4) {
      if (call.keys > kMostKeys / 2) {
        return {form == Form::like_scores ? &softmax_kernel<T, Long, Form::like_scores>
                                          : &softmax_kernel<T, Long, Form::any>,
                8};
      }
    }
    return {&softmax_kernel<T, Short, Form::any>, 4};
  }
  if (call.keys > kMostKeys) return {&softmax_kernel<T, Cluster, Form::ragged>, 8};
  constexpr std::int64_t kShort = 4096, kFew = 256;
  constexpr std::int64_t kMostOfShort = std::int64_t{Short::kMost} * Short::kVectors * kLanes<T>;
  if (call.keys > (call.rows() > kFew ? kShort : kMostOfShort)) {
    return {&softmax_kernel<T, Long, Form::ragged>, 8};
  }
  return {form == Form::plain ? &softmax_kernel<T, Short, Form::plain>
                              : &softmax_kernel<T, Short, Form::ragged>,
          4};
}

template <class T>
gpu::Status launch_resident(const Softmax& call, Form form, void* y, const void* scores,
                            gpu::Stream stream) {
  const Choice<T> choice = choose<T>(call, form);
  const RowBlock block = block_of<T>(call, choice.vectors);
  const Job job = job_of(call, shares_mask(call), together(call));
  const std::int64_t units = call.rows() / job.together, cluster = blocks_of_row(call);
  return overlap::launch_clusters(
      choice.kernel, dim3(static_cast<unsigned>(block.blocks(units) * cluster)), block.dim(),
      static_cast<unsigned>(cluster), stream, static_cast<T*>(y), static_cast<const T*>(scores),
      static_cast<unsigned>(units), job);
}

template <class T>
gpu::Status launch_softmax(const Softmax& call, void* y, const void* scores, gpu::Stream stream) {
  const Form form = form_of<T>(call);
  if (form > Form::ragged && form < Form::any) {
    const Prefetched<T> prefetched = prefetched_for<T>(call, form);
    int room = 0, processors = 0;
    gpu::Status status = gpu::shared_memory(1, room);
    if (status == gpu::kSuccess) status = gpu::multiprocessors(processors);
    if (status != gpu::kSuccess) return status;
    if (prefetched.block.threads <= Shape<4, 1024>::kMost && prefetched.shared <= room) {
      const unsigned run = run_of<T>(call, form, prefetched.block.threads, processors);
      return launch_prefetched(call, prefetched, form, run, y, scores, stream);
    }
  }
  return launch_resident<T>(call, form, y, scores, stream);
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
