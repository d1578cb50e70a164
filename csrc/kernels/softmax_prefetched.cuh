// softmax of rows of whole vectors, with a mask or alibi. A thread prefetches its next row to
// shared memory while it computes one.
#pragma once

#include "kernels/softmax_resident.cuh"
#include "kernels/tiling.h"
#include "platform/device.h"
#include "platform/shared.h"

namespace fusedops::softmax_row {

// The type of the mask.
template <class T, Form kForm>
using MaskOf = std::conditional_t<kForm == Form::boolean, bool,
                                  std::conditional_t<kForm == Form::float32, float, T>>;

// The vectors of a thread's own place in shared memory for each of its vectors: of the scores, and
// of what is added to them. What only keeps or drops is small, and read when it is needed.
template <class T, Form kForm>
constexpr int kPlaces =
    kForm == Form::boolean ? 1 : 1 + static_cast<int>(sizeof(MaskOf<T, kForm>) / sizeof(T));

// -inf where a key is dropped.
template <class T>
FUSEDOPS_DEVICE void drop(Words& raw, const Neighbours<bool, kLanes<T>>& keep) {
  const Words nothing = filled(narrow<T>(kNothing<float>));
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kLanes<T> / 2; ++i) {
      const unsigned kept = math::spread_bools(keep.units.each[i / 2], i % 2);
      raw.word[i] = (raw.word[i] & kept) | (nothing.word[i] & ~kept);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((keep.units.each[0] >> 8 * i & 1) == 0) raw.word[i] = nothing.word[i];
    }
  }
}

// Threads, vectors and warps' peaks are as in softmax_resident.cuh. A thread's vectors have places of
// their own in shared memory, so that it fetches the next row's as soon as it has the scores of
// this one in registers; what is added stays there while rows have the same.
template <class T, Form kForm>
class Rows {
  static constexpr int V = kLanes<T>, kCount = kPlaces<T, kForm>;
  static constexpr bool kBoolean = kForm == Form::boolean;
  using M = MaskOf<T, kForm>;
  using Masks = Neighbours<M, V>;

 public:
  static constexpr int kVectors = 4, kMostThreads = 1024;

  FUSEDOPS_DEVICE Rows(const Job& job, const T* scores, Words* places)
      : job_(job), scores_(scores), places_(places + threadIdx.y * blockDim.x) {}

  // Starts to fetch row `at`.
  FUSEDOPS_DEVICE void fetch(unsigned at, bool first) {
    const Place<unsigned> place = job_.place(at);
    const std::int64_t mask = start(job_.mask, place);
    const Keys<int> seen = job_.sight.of(static_cast<int>(place.query));
    const bool same = !first && mask == mask_ && seen.first == seen_.first && seen.end == seen_.end;
    row = static_cast<std::int64_t>(job_.row(at, place)) * job_.sight.keys;
    mask_ = mask;
    seen_ = seen;
    slope_ = job_.alibi.type != Beside::Type::none
                 ? job_.slopes * slope_of<T>(job_.alibi, place.head)
                 : 0;
    copy<1>(as_words(scores_ + row), 0);
    if constexpr (!kBoolean) {
      if (!same) copy<kCount - 1>(as_words(static_cast<const M*>(job_.mask.data) + mask), 1);
    }
    async_copy::close_group();
  }

  // Waits for the row, and gives what softmax is taken of.
  FUSEDOPS_DEVICE void take(float (&z)[kVectors][V]) {
    fetch::keep(thread);
    Masks masks[kVectors];
    const bool drops = kBoolean && job_.mask.type != Beside::Type::none;
    if (drops) {
      const M* const mask = static_cast<const M*>(job_.mask.data) + mask_;
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (is_seen(k)) masks[k] = Masks::read(mask + column(k));
      }
    }
    async_copy::wait_but(0);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      Words raw = place(k, 0);
      if constexpr (kBoolean) {
        if (drops) drop<T>(raw, masks[k]);
      }
      widen<T>(z[k], raw);
      if constexpr (!kBoolean) add(z[k], k);
      if (slope_ != 0) slant(z[k], static_cast<float>(column(k) - (seen_.end - 1)));
      hide(z[k], column(k));
    }
  }

  FUSEDOPS_DEVICE void store(T* y, std::int64_t to, const float (&z)[kVectors][V]) {
    fetch::keep(thread);
    Words* const out = as_words(y + to);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (column(k) < job_.sight.keys) out[thread + k * blockDim.x] = packed(narrow<T>(z[k]));
    }
  }

  std::int64_t row = 0;           // element of the scores
  unsigned thread = threadIdx.x;  // kept anew, as what is made of it would take registers

 private:
  FUSEDOPS_DEVICE int column(int k) const { return static_cast<int>(thread + k * blockDim.x) * V; }
  FUSEDOPS_DEVICE bool is_seen(int k) const {
    return column(k) < seen_.end && column(k) + V > seen_.first;
  }
  FUSEDOPS_DEVICE Words& place(int k, int part) const {
    return places_[thread + (k * kCount + part) * blockDim.x * blockDim.y];
  }

  // Each of the thread's vectors is kParts vectors of `from`.
  template <int kParts>
  FUSEDOPS_DEVICE void copy(const Words* from, int part) const {
    from += thread * kParts;
    if constexpr (async_copy::kHere) {
      for_parts<kParts>([&](int k, int j) {
        async_copy::start(shared::address_of(&place(k, part + j)),
                          from + k * blockDim.x * kParts + j, is_seen(k));
      });
    } else {
      Words parts[kVectors][kParts];
      for_parts<kParts>([&](int k, int j) {
        if (is_seen(k)) parts[k][j] = from[k * blockDim.x * kParts + j];
      });
      for_parts<kParts>([&](int k, int j) { place(k, part + j) = parts[k][j]; });
    }
  }
  template <int kParts, class Do>
  FUSEDOPS_DEVICE static void for_parts(const Do& act) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
#pragma unroll
      for (int j = 0; j < kParts; ++j) act(k, j);
    }
  }

  FUSEDOPS_DEVICE void add(float (&z)[V], int k) const {
    Words parts[kCount - 1];
#pragma unroll
    for (int j = 0; j < kCount - 1; ++j) parts[j] = place(k, 1 + j);
    Masks mask;
    memcpy(&mask, parts, sizeof(mask));
    const auto lanes = mask.lanes();
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = with_mask(job_.scale, z[i], lanes.each[i]);
  }

  // The alibi of a key, less that of the row's last: the numbers stay small.
  FUSEDOPS_DEVICE void slant(float (&z)[V], float from_last) const {
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  FUSEDOPS_DEVICE void hide(float (&z)[V], int column) const {
    if (column >= seen_.first && column + V <= seen_.end) return;
    const auto count = static_cast<unsigned>(seen_.end - seen_.first);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (static_cast<unsigned>(column - seen_.first + i) >= count) z[i] = kNothing<float>;
    }
  }

  const Job& job_;
  const T* scores_;
  Words* places_;
  std::int64_t mask_ = 0;
  Keys<int> seen_{};
  float slope_ = 0;
};

// Of a thread's part of a row, whose maximum is `top`, makes exponentials; gives what they are to
// be multiplied by.
template <int kVectors, int V>
FUSEDOPS_DEVICE float exponentials(float (&z)[kVectors][V], float top, float factor,
                                   Peak<float>* shared) {
  top = reduce_lanes(top, blockDim.x, Max{});
  const float base = base_of(top);
  float sum = 0;
#pragma unroll
  for (auto& vector : z) {
    float part = 0;
#pragma unroll
    for (float& each : vector) {
      each = two_to((each - base) * factor);
      part += each;
    }
    sum += part;
  }
  sum = reduce_lanes(sum, blockDim.x, Sum{});
  const auto peak = peak_of_row<float>({top, sum}, factor, static_cast<int>(blockDim.x), shared);
  return two_to((top - peak.top) * factor) * inverse(peak.sum);
}

// A block takes job.together rows for each of its rows of threads, one after another.
template <class T, Form kForm>
__global__ void __launch_bounds__((Rows<T, kForm>::kMostThreads))
    softmax_ahead_kernel(T* __restrict__ y, const T* __restrict__ scores, unsigned count,
                         const Job job) {
  constexpr int kVectors = Rows<T, kForm>::kVectors;
  __shared__ Peak<float> shared[2][kMostWarps];
  extern __shared__ Words places[];
  overlap::wait();
  const unsigned first = (blockIdx.x * blockDim.y + threadIdx.y) * job.together;
  Rows<T, kForm> rows(job, scores, places);
  // Past the last row it is taken once more.
  rows.fetch(min(first, count - 1), true);
#pragma unroll 1
  for (unsigned i = 1;; ++i) {
    float z[kVectors][kLanes<T>], top = kNothing<float>;
    rows.take(z);
#pragma unroll
    for (const auto& vector : z) {
#pragma unroll
      for (const float each : vector) top = fmaxf(top, each);
    }
    const std::int64_t row = rows.row;
    if (i < job.together) rows.fetch(min(first + i, count - 1), false);
    const float share = exponentials(z, top, job.factor, shared[i % 2]);
#pragma unroll
    for (auto& vector : z) {
#pragma unroll
      for (float& each : vector) each *= share;
    }
    rows.store(y, row, z);
    if (i >= job.together) return;
  }
}

}  // namespace fusedops::softmax_row

namespace fusedops::kernels::softmax_detail {

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

}  // namespace fusedops::kernels::softmax_detail
