// softmax of rows that stay in registers, of a block's threads or a cluster's: the parameters of a
// call, the sum of scores, mask and alibi, and the kernel.
#pragma once

#include "kernels/softmax.h"
#include "kernels/softmax_row.cuh"
#include "kernels/tiling.h"
#include "platform/overlap.h"
#include "platform/shared.h"

namespace fusedops::softmax_row {

// The parameters of a launch: y = 2^(factor (z - max z)) / sum, where z = scale score + alibi +
// mask. Where only slopes are added the factor contains the scale, and z = score + alibi / scale.
//
// Rows are numbered batch by batch, over `outer`, then `inner`. If heads are inside, heads that
// share a mask's row run together, and that row is read from memory once.
struct SoftmaxParams {
  Visibility<int> visibility;
  Divisor inner, outer;  // the numbers of heads and queries
  bool heads_inside;     // `inner` counts heads, `outer` queries; else the other way round
  bool alike;            // all rows see the same keys
  unsigned together;     // rows that the same threads compute, one after another
  float scale, factor;
  float slopes;  // a factor of the slopes
  ScoreBias mask, alibi;

  FUSEDOPS_DEVICE RowIndex<unsigned> index(unsigned at) const {
    if (alike) return {0, 0, 0};
    const unsigned rest = inner.quotient(at), in = at - rest * inner.by;
    const unsigned batch = outer.quotient(rest), out = rest - batch * outer.by;
    return heads_inside ? RowIndex<unsigned>{batch, in, out} : RowIndex<unsigned>{batch, out, in};
  }
  // The index of the row's first score.
  FUSEDOPS_DEVICE std::int64_t first(unsigned at, const RowIndex<unsigned>& index) const {
    const unsigned row =
        heads_inside ? (index.batch * inner.by + index.head) * outer.by + index.query : at;
    return static_cast<std::int64_t>(row) * visibility.keys;
  }
};

// What is added to the scores. plain: nothing; ragged: nothing, but queries see different keys.
// From like_scores on there is a mask of the named type, read in vectors like the scores, and there
// may be slopes. `boolean` also serves slopes without a mask. any: a mask that is read element by
// element, or none.
enum class Masking { plain, ragged, like_scores, float32, boolean, any };

// The element type of the mask.
template <class T, Masking kMasking>
using MaskOf = std::conditional_t<kMasking == Masking::boolean, bool,
                                  std::conditional_t<kMasking == Masking::float32, float, T>>;

template <int V>
FUSEDOPS_DEVICE float largest(const float (&z)[V]) {
  float most = z[0];
#pragma unroll
  for (int i = 1; i < V; ++i) most = fmaxf(most, z[i]);
  return most;
}

template <int V>
FUSEDOPS_DEVICE float sum_of(const float (&z)[V]) {
  float sum = 0;
#pragma unroll
  for (const float each : z) sum += each;
  return sum;
}

template <int V>
FUSEDOPS_DEVICE void scale(float (&z)[V], float by) {
#pragma unroll
  for (float& each : z) each *= by;
}

// What is added to one row, whose vectors begin `head` keys after the first visible key. With
// kAround a mask that starts anywhere is read in the vectors around those of the scores, not
// element by element; that takes more registers.
template <class T, Masking kMasking, bool kAround = false>
class Addend {
  static constexpr int V = kLanes<T>;
  using Type = ScoreBias::Type;

 public:
  FUSEDOPS_DEVICE Addend(const SoftmaxParams& params, const RowIndex<unsigned>& index,
                         const KeyRange<int>& seen, int head)
      : params_(params), head_(head), last_(seen.end - seen.first - 1) {
    if constexpr (kMasking <= Masking::ragged) return;
    const std::int64_t first = start(params.mask, index) + seen.first;
    const std::int64_t size = params.mask.type == Type::boolean   ? sizeof(bool)
                              : params.mask.type == Type::float32 ? sizeof(float)
                                                                  : sizeof(T);
    mask_ = static_cast<const char*>(params.mask.data) + first * size;
    sloped_ = params.alibi.type != Type::none;
    if (sloped_) slope_ = slope_of<T>(params.alibi, index.head);
  }

  using M = MaskOf<T, kMasking>;
  using Masks = Neighbours<M, V>;

  // The mask of vector v of the row, if it is read in vectors.
  FUSEDOPS_DEVICE Masks read(unsigned v, unsigned vectors) const {
    constexpr bool kInVectors = kMasking > Masking::ragged && kMasking != Masking::any;
    if (!kInVectors || params_.mask.type == Type::none || v >= vectors) return {};
    return Masks::read(reinterpret_cast<const M*>(mask_) + head_ + static_cast<int>(v) * V);
  }

  // Widens vector v of the row and adds to it. A missing vector becomes -inf.
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Packed& raw, unsigned v,
                                unsigned vectors) const {
    complete(z, raw, v, vectors, read(v, vectors));
  }
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Packed& raw, unsigned v, unsigned vectors,
                                const Masks& mask) const {
    widen<T>(z, raw);
    if constexpr (kMasking <= Masking::ragged) return;
    const int column = head_ + static_cast<int>(v) * V;
    if (params_.mask.type == Type::none) {
      scale(z, params_.scale);
    } else if constexpr (kMasking == Masking::any) {
      // Between two vectors of the row it may read the mask's vectors around this one.
      if (kAround && vectors > 2 && v - 1 < vectors - 2) {
        around(z, column);
      } else if (v < vectors) {
        masked<V>(z, column);
      }
    } else {
      const auto lanes = mask.lanes();
#pragma unroll
      for (int i = 0; i < V; ++i) z[i] = with_mask(params_.scale, z[i], lanes.each[i]);
    }
    if (!sloped_) return;
    const auto from_last = static_cast<float>(column - last_);
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  // The same for one element.
  FUSEDOPS_DEVICE float complete(float z, int column) const {
    if constexpr (kMasking <= Masking::ragged) return z;
    masked<1>(&z, column);
    // Alibi is taken relative to the row's last key, so that the numbers stay small.
    return sloped_ ? fmaf(slope_, static_cast<float>(column - last_), z) : z;
  }

  // Makes the compiler read the mask again instead of keeping it, after `after` is known.
  FUSEDOPS_DEVICE void forget(float after) {
    if constexpr (kMasking > Masking::ragged) mask_ += math::unknown_zero(after);
  }

 private:
  // Adds a mask that starts anywhere to the vector from `column` on.
  FUSEDOPS_DEVICE void around(float (&z)[V], int column) const {
    if (params_.mask.type == Type::like_scores) return add_around<T>(z, column);
    if (params_.mask.type == Type::float32) return add_around<float>(z, column);
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const auto address = reinterpret_cast<std::uintptr_t>(mask_) + column + i;
      const unsigned off = address % 4;
      const auto* const words = reinterpret_cast<const unsigned*>(address - off);
      const std::uint64_t both = words[0] | std::uint64_t{words[off == 0 ? 0 : 1]} << 32;
      const auto four = static_cast<unsigned>(both >> 8 * off);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        z[i + j] = with_mask(params_.scale, z[i + j], (four >> 8 * j & 1) != 0);
      }
    }
  }
  template <class M>
  FUSEDOPS_DEVICE void add_around(float (&z)[V], int column) const {
#pragma unroll
    for (int i = 0; i < V; i += kLanes<M>) {
      const Vector<M> mask = load_anywhere(reinterpret_cast<const M*>(mask_) + column + i);
#pragma unroll
      for (int j = 0; j < kLanes<M>; ++j) {
        z[i + j] = with_mask(params_.scale, z[i + j], mask.lane[j]);
      }
    }
  }
  template <int kCount>
  FUSEDOPS_DEVICE void masked(float* z, int column) const {
    switch (params_.mask.type) {
      case Type::like_scores:
        return add<T, kCount>(z, column);
      case Type::float32:
        return add<float, kCount>(z, column);
      case Type::boolean:
        return add<bool, kCount>(z, column);
      default:
#pragma unroll
        for (int i = 0; i < kCount; ++i) z[i] *= params_.scale;
    }
  }
  template <class M, int kCount>
  FUSEDOPS_DEVICE void add(float* z, int column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      z[i] = with_mask(params_.scale, z[i], reinterpret_cast<const M*>(mask_)[column + i]);
    }
  }

  const SoftmaxParams& params_;
  int head_, last_;
  const char* mask_ = nullptr;  // the mask at the first visible key
  bool sloped_ = false;
  float slope_ = 0;
};

// How softmax_kernel uses threads and registers: vectors of a thread, most threads of a block, and
// blocks of a multiprocessor, at least. With kPacked, scores stay packed in registers, and every
// use computes from them again: at 16 bits that takes half the registers.
//
// 4 vectors a thread are fastest where a multiprocessor holds several blocks. At 16 bits, masks and
// alibi leave no registers for more, because they are added in float32. With 8, a multiprocessor
// has room for a second row of 32 Ki keys.
struct ShortRows {
  static constexpr int kVectors = 4, kMost = 1024, kBlocks = 1;
  static constexpr bool kPacked = false, kClusters = false;
};
template <class T>
struct LongRows {
  static constexpr bool kPacked = sizeof(T) == 2, kClusters = false;
  static constexpr int kVectors = 8, kMost = kPacked ? 512 : 1024, kBlocks = kPacked ? 2 : 1;
};
// The threads of a cluster share a row. Three blocks of a multiprocessor, each with 32 KiB of a row
// in registers, keep memory busy; measured (H200). Longer rows take what registers there are.
struct ClusterRows {
  static constexpr bool kPacked = false, kClusters = true;
  static constexpr int kVectors = 8, kMost = 256, kBlocks = 3;
};
struct LongestRows {
  static constexpr bool kPacked = true, kClusters = true;
  static constexpr int kVectors = 8, kMost = 1024, kBlocks = 1;
};

// The place of the calling thread among those of its row.
template <class S>
struct RowThread {
  unsigned thread = threadIdx.x, threads = blockDim.x;

  FUSEDOPS_DEVICE RowThread() {
    if constexpr (!S::kClusters) return;
    thread += cluster::rank() * blockDim.x;
    threads *= cluster::size();
  }
};

template <class Op>
FUSEDOPS_DEVICE float reduce_lanes(float value, unsigned threads, Op op) {
  return threads >= warp::kWidth ? warp::reduce(value, warp::kWidth, op)
                                 : warp::reduce(value, static_cast<int>(threads), op);
}

// Loads the thread's vectors of a row, as far apart as the row has threads.
template <class T, bool kOnce, class S>
FUSEDOPS_DEVICE void load_vectors(Packed (&raw)[S::kVectors], const Packed* in, unsigned vectors,
                                  const RowThread<S>& of) {
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    const unsigned v = of.thread + k * of.threads;
    raw[k] = pack_copies(narrow<T>(kNothing<float>));
    if (v < vectors) raw[k] = kOnce ? read_once(in + v) : in[v];
  }
}

// Starts to copy them to places in shared memory that no other thread touches: until the vectors
// are used they take no registers, so a multiprocessor has room for one more block.
template <class T, class S>
FUSEDOPS_DEVICE void copy_vectors(Packed* places, const Packed* in, unsigned vectors,
                                  const RowThread<S>& of) {
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    const unsigned v = of.thread + k * of.threads;
    Packed* const place = places + threadIdx.x + k * blockDim.x;
    if (v < vectors) async_copy::start(shared::address_of(place), in + v, true);
  }
  async_copy::commit_group();
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (of.thread + k * of.threads >= vectors) {
      places[threadIdx.x + k * blockDim.x] = pack_copies(narrow<T>(kNothing<float>));
    }
  }
}

// Prefetches the thread's vectors of the next head's row, which the same threads compute next.
template <class T, int kVectors>
FUSEDOPS_DEVICE void prefetch_next_head(const Packed* in, unsigned vectors,
                                        const SoftmaxParams& params) {
  const std::int64_t head =
      static_cast<std::int64_t>(params.outer.by) * params.visibility.keys * sizeof(T);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const unsigned v = threadIdx.x + k * blockDim.x;
    if (v < vectors) fetch::into_l2(reinterpret_cast<const char*>(in + v) + head);
  }
}

// Where the threads of a row leave what the others need.
struct BlockRoom {
  Peak<float> of_warp[kMostWarps];

  FUSEDOPS_DEVICE Peak<float> merged(const Peak<float>& own, float factor) {
    return peak_of_row<float>(own, factor, static_cast<int>(blockDim.x), of_warp);
  }
};

// The warps of a cluster send their peaks to all its blocks: a step by way of each block would take
// longer.
template <class S>
struct ClusterRoom {
  static constexpr int kWarps = S::kMost / warp::kWidth;  // of a block, at most
  static constexpr int kOfLane = kWarps * cluster::kMostBlocks / warp::kWidth;
  float2 of_warp[kOfLane * warp::kWidth];
  cluster::Mailbox box;

  // All threads call it, and cluster::wait() before the first one sends.
  FUSEDOPS_DEVICE void open() {
    constexpr unsigned kValues = 2;
    const unsigned warps = blockDim.x / warp::kWidth * cluster::size();
    if (threadIdx.x == 0) cluster::open(box, kValues * warps);
    cluster::arrive_relaxed();
  }
  FUSEDOPS_DEVICE Peak<float> merged(const Peak<float>& own, float factor) {
    const unsigned lane = threadIdx.x % warp::kWidth, warps = blockDim.x / warp::kWidth;
    cluster::wait();
    if (lane < cluster::size()) {
      const unsigned to = cluster::rank() * warps + threadIdx.x / warp::kWidth;
      cluster::send({own.top, own.sum}, of_warp[to], box, lane);
    }
    cluster::receive(box, 0);
    const auto each = [&](const auto& take) {
#pragma unroll 4
      for (int i = 0; i < kOfLane; ++i) {
        const unsigned at = lane + i * warp::kWidth;
        if (at < warps * cluster::size()) take(of_warp[at]);
      }
    };
    Peak<float> of_lane{kNothing<float>, 0};
    each([&](const float2& peak) { of_lane.top = fmaxf(of_lane.top, peak.x); });
    const float base = base_of(of_lane.top);
    each([&](const float2& peak) { of_lane.sum += peak.y * two_to((peak.x - base) * factor); });
    return softmax_row::merged(of_lane, factor, warp::kWidth);
  }
};
template <class S>
using RoomOf = std::conditional_t<S::kClusters, ClusterRoom<S>, BlockRoom>;

constexpr int kMasksTogether = 4;  // masks in flight together: as many as registers allow

// A row is read once and stays in registers: a thread holds kVectors of its vectors, as far apart
// as the row has threads, and perhaps one element at its edges.
//
// The exponentials are taken relative to the maximum of the thread's warp. So the warps of a row,
// and the blocks of a cluster, synchronize once, for maxima and sums together.
template <class T, class S, Masking kMasking>
FUSEDOPS_DEVICE void compute_row(T* __restrict__ y, const T* __restrict__ scores, unsigned at,
                                 const SoftmaxParams& params, RoomOf<S>& room, bool more) {
  constexpr int V = kLanes<T>, kVectors = S::kVectors;
  constexpr bool kMasked = kMasking > Masking::ragged, kPlain = kMasking == Masking::plain;
  constexpr bool kKeep = !S::kPacked;
  constexpr bool kWhole = S::kClusters && kPlain;  // rows are whole vectors
  const RowThread<S> of;
  const unsigned thread = of.thread, threads = of.threads, lanes = blockDim.x;
  const RowIndex<unsigned> index = kPlain ? RowIndex<unsigned>{} : params.index(at);
  const KeyRange<int> seen = kPlain ? KeyRange<int>{0, params.visibility.keys}
                                    : params.visibility.of(static_cast<int>(index.query));
  const int count = seen.end - seen.first;
  const std::int64_t row = kPlain ? std::int64_t{at} * seen.end : params.first(at, index);
  const std::int64_t begin = row + seen.first;
  const auto span = kWhole ? SpanOf<int>{0, 0, count / V} : span_at<V>(begin, count);
  const auto vectors = static_cast<unsigned>(span.vectors);
  const bool has_edge = !kWhole && static_cast<int>(thread) < span.edges;
  const int edge_column = span.template edge<V>(static_cast<int>(thread));
  const Packed* const in = as_packed(scores + begin + span.head);
  Packed raw[kVectors];
  FUSEDOPS_DYNAMIC_SHARED(Packed, places);
  constexpr bool kCopies = S::kClusters && !S::kPacked;
  // What is not added to is read twice from shared memory, so that registers need not hold both.
  constexpr bool kAgain = kCopies && !kMasked;
  Addend<T, kMasking, S::kClusters> addend(params, index, seen, span.head);
  typename decltype(addend)::Masks masks[kCopies ? kVectors : 1];
  if constexpr (kCopies) {
    copy_vectors<T>(places, in, vectors, of);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) masks[k] = addend.read(thread + k * threads, vectors);
    async_copy::wait_group(0);
  } else {
    load_vectors<T, kMasked>(raw, in, vectors, of);
  }
  float edge = has_edge ? widen(scores[begin + edge_column]) : kNothing<float>;
  if (kMasked && kVectors <= 4 && more) prefetch_next_head<T, kVectors>(in, vectors, params);
  if (kMasking != Masking::plain) {
    write_unseen(y, row, seen, params.visibility.keys, narrow<T>(0.0f), thread, threads);
  }
  // Whether no thread has its vector k. With a mask it is not asked, as branches would separate the
  // mask's loads, nor in a cluster, whose rows fill nearly all vectors.
  const auto absent = [&](int k) {
    return kMasking == Masking::ragged && !S::kClusters && k * threads >= vectors;
  };

  if (has_edge) edge = addend.complete(edge, edge_column);
  float cached[kKeep ? kVectors : 1][V], top = edge;
  if constexpr (kAgain) {
    Packed most = places[threadIdx.x];
#pragma unroll
    for (int k = 1; k < kVectors; ++k) most = larger<T>(most, places[threadIdx.x + k * lanes]);
    float z[V];
    widen<T>(z, most);
    top = fmaxf(top, largest(z));
  }
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (kAgain || absent(k)) break;
    if (k > 0 && k % kMasksTogether == 0) addend.forget(top);
    float (&z)[V] = cached[kKeep ? k : 0];
    const unsigned v = thread + k * threads;
    if constexpr (kCopies) {
      addend.complete(z, places[threadIdx.x + k * lanes], v, vectors, masks[k]);
    } else {
      addend.complete(z, raw[k], v, vectors);
    }
    top = fmaxf(top, largest(z));
  }
  top = reduce_lanes(top, lanes, Max{});
  const Packed* const own = places + (threadIdx.x ^ math::unknown_zero(top));
  const float base = base_of(top);
  const auto exponential = [&](float x) { return two_to((x - base) * params.factor); };
  const auto take = [&](int k) -> float (&)[V] {
    float (&z)[V] = cached[kKeep ? k : 0];
    if constexpr (kAgain) widen<T>(z, own[k * lanes]);
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
    sum += sum_of(take(k));
  }
  sum = reduce_lanes(sum, lanes, Sum{});
  const Peak<float> peak = room.merged({top, sum}, params.factor);
  const float share = two_to((top - peak.top) * params.factor) * inverse(peak.sum);

  Packed* const out = as_packed(y + begin + span.head);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (absent(k)) break;
    float (&z)[V] = cached[kKeep ? k : 0];
    if constexpr (!kKeep) take(k);
    const unsigned v = thread + k * threads;
    scale(z, share);
    if (v < vectors) out[v] = pack(narrow<T>(z));
  }
  if (has_edge) y[begin + edge_column] = narrow<T>(edge * share);
  if constexpr (kMasking == Masking::plain) return;
  warp::sync();  // after the zeros that other threads have written
  if (share == share) return;
  for (int column = static_cast<int>(thread); column < params.visibility.keys; column += threads) {
    if (column < seen.first || column >= seen.end) y[row + column] = narrow<T>(share);
  }
}

// Each row of threads computes one of `units` groups of params.together rows. The first row of a
// group leaves the mask in the cache. A cluster computes one row.
template <class T, class S, Masking kMasking>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(S::kMost, S::kBlocks)
    softmax_kernel(T* __restrict__ y, const T* __restrict__ scores, unsigned units,
                   const SoftmaxParams params) {
  constexpr bool kMasked = kMasking > Masking::ragged;
  if constexpr (S::kClusters) {
    if constexpr (cluster::kSupported) {
      __shared__ ClusterRoom<S> room;
      overlap::wait_in_turn();
      room.open();
      compute_row<T, S, kMasking>(y, scores, cluster::number(), params, room, false);
    }
  } else {
    __shared__ BlockRoom rooms[kMasked ? 2 : 1];
    overlap::wait();
    // Threads past the last unit compute that unit again.
    const unsigned unit = min(blockIdx.x * blockDim.y + threadIdx.y, units - 1);
    if constexpr (kMasked) {
#pragma unroll 1
      for (unsigned i = 0; i < params.together; ++i) {
        compute_row<T, S, kMasking>(y, scores, unit * params.together + i, params, rooms[i % 2],
                                    i + 1 < params.together);
      }
    } else {
      compute_row<T, S, kMasking>(y, scores, unit, params, rooms[0], false);
    }
  }
}

}  // namespace fusedops::softmax_row

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace softmax_detail {

using namespace softmax_row;

inline bool shares_mask(const Softmax& call) {
  return call.mask.type != ScoreBias::Type::none && call.mask.head == 0 && call.heads > 1;
}

inline bool is_plain(const Softmax& call) {
  return call.mask.type == ScoreBias::Type::none && call.alibi.type == ScoreBias::Type::none;
}

inline SoftmaxParams params_of(const Softmax& call, bool heads_inside, unsigned together) {
  const bool plain = is_plain(call);
  return {Visibility<int>(call),
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
using SoftmaxKernel = void (*)(T*, const T*, unsigned, SoftmaxParams);

}  // namespace softmax_detail
}  // namespace fusedops::kernels
