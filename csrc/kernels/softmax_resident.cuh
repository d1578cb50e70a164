// softmax of rows that stay in registers: what is added to the scores, and the kernel.
#pragma once

#include "kernels/softmax.h"
#include "kernels/softmax_row.cuh"
#include "kernels/tiling.h"
#include "platform/overlap.h"

namespace fusedops::softmax_row {

// y = 2^(factor (z - max z)) / sum, z = scale score + alibi + mask; where nothing is added but
// slopes the factor has the scale in it, and z = score + alibi / scale.
struct Job {
  Sight<int> sight;
  Divisor inner, outer;  // rows are taken for each batch, outer and inner
  bool heads_inside;     // inner are the heads, so that the heads that share a
                         // mask's row run together and it is read from memory once; else the
                         // queries
  bool alike;            // all rows are
  unsigned together;     // rows that the same threads take, one after another
  float scale, factor;
  float slopes;  // what they are multiplied by
  Beside mask, alibi;

  FUSEDOPS_DEVICE Place<unsigned> place(unsigned at) const {
    if (alike) return {0, 0, 0};
    const unsigned rest = inner.quotient(at), in = at - rest * inner.by;
    const unsigned batch = outer.quotient(rest), out = rest - batch * outer.by;
    return heads_inside ? Place<unsigned>{batch, in, out} : Place<unsigned>{batch, out, in};
  }
  FUSEDOPS_DEVICE unsigned row(unsigned at, const Place<unsigned>& place) const {
    return heads_inside ? (place.batch * inner.by + place.head) * outer.by + place.query : at;
  }
};

// What is added. ragged: nothing, but queries see different keys. From like_scores on: a mask of
// that type, which is read in vectors where the scores are, and perhaps slopes; boolean: or no
// mask; any: a mask that is read one by one, or none.
enum class Form { plain, ragged, like_scores, float32, boolean, any };

// Of one row, whose vectors begin `head` keys after the first that is seen.
template <class T, Form kForm>
class Addend {
  static_assert(kForm != Form::float32 && kForm != Form::boolean, "these are fetched ahead");
  static constexpr int V = kLanes<T>;
  using Type = Beside::Type;

 public:
  FUSEDOPS_DEVICE Addend(const Job& job, const Place<unsigned>& place, const Keys<int>& seen,
                         int head)
      : job_(job), head_(head), last_(seen.end - seen.first - 1) {
    if constexpr (kForm <= Form::ragged) return;
    const std::int64_t first = start(job.mask, place) + seen.first;
    const std::int64_t size = job.mask.type == Type::boolean   ? sizeof(bool)
                              : job.mask.type == Type::float32 ? sizeof(float)
                                                               : sizeof(T);
    mask_ = static_cast<const char*>(job.mask.data) + first * size;
    sloped_ = job.alibi.type != Type::none;
    if (sloped_) slope_ = slope_of<T>(job.alibi, place.head);
  }

  // Widens vector v of the row, and adds to it. Where there is none it is -inf.
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Words& raw, unsigned v,
                                unsigned vectors) const {
    widen<T>(z, raw);
    if constexpr (kForm <= Form::ragged) return;
    const int column = head_ + static_cast<int>(v) * V;
    if constexpr (kForm == Form::any) {
      if (job_.mask.type == Type::none) {
#pragma unroll
        for (float& each : z) each *= job_.scale;
      } else if (v < vectors) {
        // At 16 bits so many loads pay for a branch, and take less code.
        constexpr int kAtOnce = sizeof(T) < sizeof(float) ? V : 1;
#pragma unroll
        for (int i = 0; i < V; i += kAtOnce) masked<kAtOnce>(&z[i], column + i);
      }
    } else {
      using Masks = Neighbours<T, V>;
      Masks mask{};
      if (v < vectors) mask = Masks::read(reinterpret_cast<const T*>(mask_) + column);
      const auto lanes = mask.lanes();
#pragma unroll
      for (int i = 0; i < V; ++i) z[i] = with_mask(job_.scale, z[i], lanes.each[i]);
    }
    if (!sloped_) return;
    const auto from_last = static_cast<float>(column - last_);
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  // The same for one element.
  FUSEDOPS_DEVICE float complete(float z, int column) const {
    if constexpr (kForm <= Form::ragged) return z;
    masked<1>(&z, column);
    // The alibi of a key, less that of the row's last: the numbers stay small.
    return sloped_ ? fmaf(slope_, static_cast<float>(column - last_), z) : z;
  }

  // What has been read is read again, and not before `after` is known.
  FUSEDOPS_DEVICE void forget(float after) {
    if constexpr (kForm > Form::ragged) mask_ += math::unknown_zero(after);
  }

 private:
  template <int kCount>
  FUSEDOPS_DEVICE void masked(float* z, int column) const {
    switch (job_.mask.type) {
      case Type::like_scores:
        return add<T, kCount>(z, column);
      case Type::float32:
        return add<float, kCount>(z, column);
      case Type::boolean:
        return add<bool, kCount>(z, column);
      default:
#pragma unroll
        for (int i = 0; i < kCount; ++i) z[i] *= job_.scale;
    }
  }
  template <class M, int kCount>
  FUSEDOPS_DEVICE void add(float* z, int column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      z[i] = with_mask(job_.scale, z[i], reinterpret_cast<const M*>(mask_)[column + i]);
    }
  }

  const Job& job_;
  int head_, last_;
  const char* mask_ = nullptr;  // that of the first key that is seen
  bool sloped_ = false;
  float slope_ = 0;
};

// How a kernel is laid out.
template <int kVectorsOfThread, int kMostThreads, bool kStayPacked = false,
          int kBlocksOfMostThreads = 1>
struct Shape {
  static constexpr int kVectors = kVectorsOfThread;
  static constexpr int kMost = kMostThreads;  // of a block
  // Scores stay in registers as they are in memory, and what is made of them is made again for each
  // use: half the registers at 16 bits.
  static constexpr bool kPacked = kStayPacked;
  static constexpr int kBlocks = kBlocksOfMostThreads;  // of a multiprocessor, at least
};

template <class Op>
FUSEDOPS_DEVICE float reduce_lanes(float value, unsigned threads, Op op) {
  return threads >= warp::kWidth ? warp::reduce(value, warp::kWidth, op)
                                 : warp::reduce(value, static_cast<int>(threads), op);
}

// A row is read once and stays in registers: a thread has kVectors of its vectors, blockDim.x
// apart, and perhaps one of the elements at its edges.
//
// The exponentials are taken relative to the maximum of the thread's warp, so that the warps of a
// row meet once, with maxima and sums together.
template <class T, class S, Form kForm>
FUSEDOPS_DEVICE void do_row(T* __restrict__ y, const T* __restrict__ scores, unsigned at,
                            const Job& job, Peak<float>* shared, bool more) {
  constexpr int V = kLanes<T>, kVectors = S::kVectors;
  constexpr bool kMasked = kForm > Form::ragged, kKeep = !S::kPacked;
  constexpr int kMasksAhead = 4;  // as many are fetched together as there are registers for
  constexpr bool kPrefetch = kMasked && kVectors <= 4;
  const unsigned thread = threadIdx.x, threads = blockDim.x;
  const Place<unsigned> place = job.place(at);
  const Keys<int> seen = kForm == Form::plain ? Keys<int>{0, job.sight.keys}
                                              : job.sight.of(static_cast<int>(place.query));
  const int count = seen.end - seen.first;
  const std::int64_t row = static_cast<std::int64_t>(job.row(at, place)) * job.sight.keys;
  const std::int64_t begin = row + seen.first;
  const auto span = span_at<V>(begin, count);
  const auto vectors = static_cast<unsigned>(span.vectors);
  const bool has_edge = static_cast<int>(thread) < span.edges;
  const int edge_column = span.template edge<V>(static_cast<int>(thread));

  const Words* const in = as_words(scores + begin + span.head);
  Words raw[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const unsigned v = thread + k * threads;
    raw[k] = filled(narrow<T>(kNothing<float>));
    if (v < vectors) raw[k] = kMasked ? read_once(in + v) : in[v];
  }
  float edge = has_edge ? widen(scores[begin + edge_column]) : kNothing<float>;
  if (kPrefetch && more) {  // the same threads take the next head's row next
    const std::int64_t head = static_cast<std::int64_t>(job.outer.by) * job.sight.keys * sizeof(T);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const unsigned v = thread + k * threads;
      if (v < vectors) fetch::into_l2(reinterpret_cast<const char*>(in + v) + head);
    }
  }
  if constexpr (kForm != Form::plain) {
    write_unseen(y, row, seen, job.sight.keys, narrow<T>(0.0f), static_cast<int>(thread),
                 static_cast<int>(threads));
  }
  // Whether no thread has its vector k. Not asked where branches would keep a mask's loads apart.
  const auto absent = [&](int k) { return kForm == Form::ragged && k * threads >= vectors; };

  Addend<T, kForm> addend(job, place, seen, span.head);
  if (has_edge) edge = addend.complete(edge, edge_column);
  float kept[kKeep ? kVectors : 1][V], top = edge;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (absent(k)) break;
    if (k > 0 && k % kMasksAhead == 0) addend.forget(top);
    float (&z)[V] = kept[kKeep ? k : 0];
    addend.complete(z, raw[k], thread + k * threads, vectors);
    float most = z[0];
#pragma unroll
    for (int i = 1; i < V; ++i) most = fmaxf(most, z[i]);
    top = fmaxf(top, most);
  }
  top = reduce_lanes(top, threads, Max{});
  const float base = base_of(top);
  const auto exponential = [&](float x) { return two_to((x - base) * job.factor); };
  const auto take = [&](int k) -> float (&)[V] {
    float (&z)[V] = kept[kKeep ? k : 0];
    if constexpr (!kKeep) {
      forget(raw[k]);
      addend.complete(z, raw[k], thread + k * threads, vectors);
    }
#pragma unroll
    for (float& each : z) each = exponential(each);
    return z;
  };
  edge = exponential(edge);
  float sum = edge;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (absent(k)) break;
    const float (&z)[V] = take(k);
    float part = 0;
#pragma unroll
    for (const float each : z) part += each;
    sum += part;
  }
  sum = reduce_lanes(sum, threads, Sum{});
  const Peak<float> peak =
      peak_of_row<float>({top, sum}, job.factor, static_cast<int>(threads), shared);
  const float share = two_to((top - peak.top) * job.factor) * inverse(peak.sum);

  Words* const out = as_words(y + begin + span.head);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (absent(k)) break;
    float (&z)[V] = kept[kKeep ? k : 0];
    if constexpr (!kKeep) take(k);
    const unsigned v = thread + k * threads;
#pragma unroll
    for (float& each : z) each *= share;
    if (v < vectors) out[v] = packed(narrow<T>(z));
  }
  if (has_edge) y[begin + edge_column] = narrow<T>(edge * share);
  if constexpr (kForm == Form::plain) return;
  warp::sync();  // after the zeros, which other threads have written
  if (share == share) return;
  for (int column = static_cast<int>(thread); column < job.sight.keys; column += threads) {
    if (column < seen.first || column >= seen.end) y[row + column] = narrow<T>(share);
  }
}

// A row at a time of `units` groups of job.together, whose mask the first leaves in the cache.
template <class T, class S, Form kForm>
__global__ void __launch_bounds__(S::kMost, S::kBlocks)
    softmax_kernel(T* __restrict__ y, const T* __restrict__ scores, unsigned units, const Job job) {
  constexpr bool kMasked = kForm > Form::ragged;
  __shared__ Peak<float> shared[kMasked ? 2 : 1][kMostWarps];
  overlap::wait();
  // Threads after the last unit do that unit once more.
  const unsigned unit = min(blockIdx.x * blockDim.y + threadIdx.y, units - 1);
  if constexpr (kMasked) {
#pragma unroll 1
    for (unsigned i = 0; i < job.together; ++i) {
      do_row<T, S, kForm>(y, scores, unit * job.together + i, job, shared[i % 2],
                          i + 1 < job.together);
    }
  } else {
    do_row<T, S, kForm>(y, scores, unit, job, shared[0], false);
  }
}

}  // namespace fusedops::softmax_row

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace softmax_detail {

using namespace softmax_row;

inline bool shares_mask(const Softmax& call) {
  return call.mask.type != Beside::Type::none && call.mask.head == 0 && call.heads > 1;
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

template <class T>
using Kernel = void (*)(T*, const T*, unsigned, Job);

}  // namespace softmax_detail
}  // namespace fusedops::kernels
