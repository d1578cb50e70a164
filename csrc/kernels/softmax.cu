#include <algorithm>

#include "kernels/dispatch.cuh"
#include "kernels/row_block.h"
#include "kernels/softmax.h"
#include "kernels/softmax_ahead.cuh"
#include "kernels/softmax_kept.cuh"
#include "platform/device.h"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace softmax_detail {

using namespace softmax_row;

constexpr std::int64_t kMostKeys = 1 << 15;

inline bool shares_mask(const Softmax& call) {
  return call.mask.type != Beside::Type::none && call.mask.head == 0 && call.heads > 1;
}

// So many heads that share a mask's row are taken by the same threads, where that leaves enough for
// all multiprocessors.
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

inline bool is_plain(const Softmax& call) {
  return call.mask.type == Beside::Type::none && call.alibi.type == Beside::Type::none;
}

inline Job job_of(const Softmax& call, bool heads_inside, unsigned together) {
  const bool plain = is_plain(call);
  return {Sight<int>(call),
          Divisor(heads_inside ? call.heads : call.queries),
          Divisor(heads_inside ? call.queries : call.heads),
          heads_inside,
          plain && !call.causal && call.window == 0,
          together,
          static_cast<float>(call.scale),
          static_cast<float>(plain ? kLog2E * call.scale : kLog2E),
          1.0f,
          call.mask,
          call.alibi};
}

// Whether the kernels are for the call. With a scale that is not positive, what a thread does not
// have could not be told by its score.
inline bool fits(const Softmax& call) {
  constexpr std::int64_t kMostRows = 1 << 30;
  constexpr double kLeastScale = 1e-20;
  return call.rows() <= kMostRows && call.keys <= kMostKeys && call.scale >= kLeastScale &&
         (call.mask.type == Beside::Type::none || call.mask.key == 1) &&
         (call.alibi.type == Beside::Type::none || call.slopes);
}

template <class T>
using Kernel = void (*)(T*, const T*, unsigned, Job);

template <class T>
Form form_of(const Softmax& call) {
  if (is_plain(call)) return call.causal || call.window > 0 ? Form::ragged : Form::plain;
  const Beside& mask = call.mask;
  if (mask.type == Beside::Type::none) {
    return call.keys % kLanes<T> == 0 ? Form::boolean : Form::any;
  }
  const bool like = mask.type == Beside::Type::like_scores;
  const bool boolean = mask.type == Beside::Type::boolean;
  const std::int64_t size = boolean ? 1 : like ? sizeof(T) : sizeof(float);
  const std::int64_t at_once = std::min<std::int64_t>(kLanes<T> * size, kVectorBytes) / size;
  const bool in_line = reinterpret_cast<std::uintptr_t>(mask.data) % (at_once * size) == 0 &&
                       (mask.batch | mask.head | mask.query) % at_once == 0 &&
                       call.keys % kLanes<T> == 0;
  if (!in_line) return Form::any;
  return boolean ? Form::boolean : like ? Form::like_scores : Form::float32;
}

// 4 vectors a thread are best where a row is part of a block that the multiprocessor has several
// of; at 16 bits masks and alibi, which are added in float32, leave no room for more. With 8 a row
// of 32 Ki keys leaves room for a second one.
template <class T>
struct Choice {
  Kernel<T> kernel;
  int vectors;  // of a thread
};

template <class T>
Choice<T> choose(const Softmax& call, Form form) {
  using Short = Shape<4, 1024>;
  using Long = std::conditional_t<sizeof(T) == 4, Shape<8, 1024>, Shape<8, 512, true, 2>>;
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
gpu::Status launch_kept(const Softmax& call, Form form, void* y, const void* scores,
                        gpu::Stream stream) {
  const Choice<T> choice = choose<T>(call, form);
  const RowBlock block = block_of<T>(call, choice.vectors);
  const Job job = job_of(call, shares_mask(call), together(call));
  const std::int64_t units = call.rows() / job.together;
  return overlap::launch(choice.kernel, block.blocks(units), block.dim(), stream,
                         static_cast<T*>(y), static_cast<const T*>(scores),
                         static_cast<unsigned>(units), job);
}

constexpr int kAlwaysAllowed = 47 << 10;  // bytes; the kernels have up to 1 KiB beside it

// How a call's rows are fetched ahead.
template <class T>
struct Ahead {
  Kernel<T> kernel;
  RowBlock block;
  int shared;  // bytes
};

template <class T, Form kForm>
Ahead<T> ahead_as(const Softmax& call) {
  constexpr int kVectors = Rows<T, kForm>::kVectors, kThreads = 128;
  const RowBlock block =
      row_block(ceil_div(call.keys, std::int64_t{kLanes<T> * kVectors}), kThreads);
  const std::int64_t places = block.threads * block.rows * kVectors * kPlaces<T, kForm>;
  return {&softmax_ahead_kernel<T, kForm>, block, static_cast<int>(places * kVectorBytes)};
}

template <class T>
Ahead<T> ahead_of(const Softmax& call, Form form) {
  if (form == Form::boolean) return ahead_as<T, Form::boolean>(call);
  if constexpr (sizeof(T) < sizeof(float)) {
    if (form == Form::float32) return ahead_as<T, Form::float32>(call);
  }
  return ahead_as<T, Form::like_scores>(call);
}

// Rows that the same threads take, one after another: where a multiprocessor has only one block or
// two, so that it has something to wait for while they exchange maxima; and of masks wider than the
// scores, which are then read once for these rows. No more than leave enough for all processors.
template <class T>
unsigned run_of(const Softmax& call, Form form, std::int64_t threads, int processors) {
  constexpr std::int64_t kThreads = 1024;  // of a multiprocessor
  const bool wide = form == Form::float32 && shares_mask(call);
  unsigned run = wide ? 8 : threads > kThreads / 2 ? kLanes<T> : threads > kThreads / 4 ? 2 : 1;
  while (run > 1 && call.rows() / run * threads < processors * kThreads * 9 / 10) run /= 2;
  return run;
}

template <class T>
gpu::Status launch_ahead(const Softmax& call, const Ahead<T>& ahead, Form form, unsigned run,
                         void* y, const void* scores, gpu::Stream stream) {
  Job job = job_of(call, shares_mask(call) && call.mask.query != 0, run);
  if (form == Form::boolean) {
    job.factor = static_cast<float>(kLog2E * call.scale);
    job.slopes = static_cast<float>(1 / call.scale);
  }
  if (ahead.shared > kAlwaysAllowed) {
    const gpu::Status status = gpu::allow_shared(ahead.kernel, ahead.shared);
    if (status != gpu::kSuccess) return status;
  }
  const std::int64_t rows = call.rows(), of_block = ahead.block.rows * run;
  return overlap::launch(ahead.kernel,
                         overlap::Blocks{dim3(static_cast<unsigned>(ceil_div(rows, of_block))),
                                         ahead.block.dim(), 1, static_cast<unsigned>(ahead.shared)},
                         stream, static_cast<T*>(y), static_cast<const T*>(scores),
                         static_cast<unsigned>(rows), job);
}

template <class T>
gpu::Status launch_softmax(const Softmax& call, void* y, const void* scores, gpu::Stream stream) {
  const Form form = form_of<T>(call);
  if (form > Form::ragged && form < Form::any) {
    const Ahead<T> ahead = ahead_of<T>(call, form);
    int room = 0, processors = 0;
    gpu::Status status = gpu::shared_memory(1, room);
    if (status == gpu::kSuccess) status = gpu::multiprocessors(processors);
    if (status != gpu::kSuccess) return status;
    if (ahead.block.threads <= Shape<4, 1024>::kMost && ahead.shared <= room) {
      const unsigned run = run_of<T>(call, form, ahead.block.threads, processors);
      return launch_ahead(call, ahead, form, run, y, scores, stream);
    }
  }
  return launch_kept<T>(call, form, y, scores, stream);
}

}  // namespace softmax_detail

using namespace softmax_detail;

gpu::Status softmax(const Softmax& call, void* y, const void* scores, gpu::Stream stream) {
  if (!aligned(y) || !aligned(scores)) return gpu::kInvalidValue;
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (sizeof(T) < 8) {
      if (fits(call)) return launch_softmax<T>(call, y, scores, stream);
    }
    return softmax_streamed(call, y, scores, stream);
  });
}

}  // namespace fusedops::kernels
