// softmax of rows that stay in registers, of a block's threads or a cluster's.
#pragma once

#include "kernels/row_cluster.cuh"
#include "kernels/softmax_scores.cuh"
#include "platform/overlap.h"
#include "platform/shared.h"

namespace fusedops::softmax_row {

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
// The threads of a cluster share a row. Three blocks of a multiprocessor, each with 16 Ki scores of
// a row in registers, keep memory busy; measured (H200). A mask leaves room for 8 vectors a thread
// of any type. Longer rows take what registers there are.
template <int kCount>
struct ClusterRows {
  static constexpr bool kPacked = false, kClusters = true;
  static constexpr int kVectors = kCount, kMost = 256, kBlocks = 3;
};
template <class T, bool kMasked>
using ClusterRowsOf = ClusterRows<kMasked ? 8 : 64 / kLanes<T>>;
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

// The warps of a cluster send their peaks to all its blocks.
template <class S>
struct ClusterRoom {
  using Exchange = row_cluster::ClusterExchange<2, S::kMost / warp::kWidth>;
  typename Exchange::Room room;

  FUSEDOPS_DEVICE Exchange exchange() { return room; }
  FUSEDOPS_DEVICE Peak<float> merged(const Peak<float>& own, float factor) {
    const Exchange warps = exchange();
    cluster::wait();
    warps.send({{own.top, own.sum}});
    warps.receive(0);
    Peak<float> of_lane{kNothing<float>, 0};
    warps.each([&](const auto& peak, unsigned) { of_lane.top = fmaxf(of_lane.top, peak.of[0]); });
    const float base = base_of(of_lane.top);
    warps.each([&](const auto& peak, unsigned) {
      of_lane.sum += peak.of[1] * two_to((peak.of[0] - base) * factor);
    });
    return softmax_row::merged(of_lane, factor, warp::kWidth);
  }
};
template <class S>
using RoomOf = std::conditional_t<S::kClusters, ClusterRoom<S>, BlockRoom>;

constexpr int kMasksTogether = 4;  // masks in flight together: as many as registers allow

// Row number `at` and where it lies, with the element at its edges that the thread may have.
template <class T, class S, Masking kMasking>
struct ResidentRow {
  static constexpr int V = kLanes<T>;
  static constexpr bool kPlain = kMasking == Masking::plain;
  static constexpr bool kWhole = S::kClusters && kPlain;  // rows are whole vectors
  const RowIndex<unsigned> index;
  const KeyRange<int> seen;
  const std::int64_t first, begin;  // its first element, and the first that is seen
  const SpanOf<int> span;
  const unsigned vectors;
  const bool has_edge;
  const int edge_column;

  FUSEDOPS_DEVICE ResidentRow(const SoftmaxParams& params, unsigned at, unsigned thread)
      : index(kPlain ? RowIndex<unsigned>{} : params.index(at)),
        seen(kPlain ? KeyRange<int>{0, params.visibility.keys}
                    : params.visibility.of(static_cast<int>(index.query))),
        first(kPlain ? std::int64_t{at} * seen.end : params.first(at, index)),
        begin(first + seen.first),
        span(kWhole ? SpanOf<int>{0, 0, count() / V} : span_at<V>(begin, count())),
        vectors(static_cast<unsigned>(span.vectors)),
        has_edge(!kWhole && static_cast<int>(thread) < span.edges),
        edge_column(span.template edge<V>(static_cast<int>(thread))) {}

  FUSEDOPS_DEVICE int count() const { return seen.end - seen.first; }
  // Its vectors, in a tensor of as many elements as the scores.
  template <class Element>
  FUSEDOPS_DEVICE auto in(Element* data) const {
    return as_packed(data + begin + span.head);
  }
};

// Makes all of a row NaN where its sum is: `share`, which its keys have got. All its threads call
// it after they have written zeros for those that are not seen.
template <class T, class Row>
FUSEDOPS_DEVICE void spread_nan(T* y, const Row& row, float share, int keys, unsigned thread,
                                unsigned threads) {
  warp::sync();  // after the zeros that other threads have written
  if (share == share) return;
  for (int column = static_cast<int>(thread); column < keys; column += threads) {
    if (column < row.seen.first || column >= row.seen.end) y[row.first + column] = narrow<T>(share);
  }
}

// The thread's vectors of a row, from their load on.
template <class T, class S, Masking kMasking>
struct ThreadScores {
  static constexpr int V = kLanes<T>, kVectors = S::kVectors;
  static constexpr bool kMasked = kMasking > Masking::ragged, kKeep = !S::kPacked;
  static constexpr bool kCopies = S::kClusters && !S::kPacked;
  // What is not added to is read twice from shared memory, so that registers need not hold both.
  static constexpr bool kAgain = kCopies && !kMasked;
  using Adds = Addend<T, kMasking, S::kClusters>;

  const RowThread<S> of;
  const unsigned vectors;  // of the row
  Packed* const places;
  Adds addend;
  typename Adds::Masks masks[kCopies ? kVectors : 1];
  Packed raw[kVectors];
  float cached[kKeep ? kVectors : 1][V];

  FUSEDOPS_DEVICE ThreadScores(const RowThread<S>& of, const ResidentRow<T, S, kMasking>& row,
                               const SoftmaxParams& params, Packed* places)
      : of(of),
        vectors(row.vectors),
        places(places),
        addend(params, row.index, row.seen, row.span.head) {}
  FUSEDOPS_DEVICE unsigned vector(int k) const { return of.thread + k * of.threads; }
  // Whether no thread has its vector k. With a mask it is not asked, as branches would separate the
  // mask's loads, nor in a cluster, whose rows fill nearly all vectors.
  FUSEDOPS_DEVICE bool absent(int k) const {
    return kMasking == Masking::ragged && !S::kClusters && k * of.threads >= vectors;
  }
  FUSEDOPS_DEVICE void load(const Packed* in) {
    if constexpr (kCopies) {
      copy_vectors<T>(places, in, vectors, of);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) masks[k] = addend.read(vector(k), vectors);
      async_copy::wait_group(0);
    } else {
      load_vectors<T, kMasked>(raw, in, vectors, of);
    }
  }
  // The largest one, and `top`.
  FUSEDOPS_DEVICE float largest_of(float top) {
    if constexpr (kAgain) {
      Packed most = places[threadIdx.x];
#pragma unroll
      for (int k = 1; k < kVectors; ++k) {
        most = larger<T>(most, places[threadIdx.x + k * blockDim.x]);
      }
      float z[V];
      widen<T>(z, most);
      top = fmaxf(top, largest(z));
    } else {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (absent(k)) break;
        if (k > 0 && k % kMasksTogether == 0) addend.forget(top);
        float (&z)[V] = cached[kKeep ? k : 0];
        if constexpr (kCopies) {
          addend.complete(z, places[threadIdx.x + k * blockDim.x], vector(k), vectors, masks[k]);
        } else {
          addend.complete(z, raw[k], vector(k), vectors);
        }
        top = fmaxf(top, largest(z));
      }
    }
    return top;
  }
  // The exponentials of vector k. `own` is the thread's place.
  template <class Exponential>
  FUSEDOPS_DEVICE float (&take(int k, const Packed* own, const Exponential& exponential)) [V] {
    float (&z)[V] = cached[kKeep ? k : 0];
    if constexpr (kAgain) widen<T>(z, own[k * blockDim.x]);
    if constexpr (!kKeep) {
      forget(raw[k]);
      addend.complete(z, raw[k], vector(k), vectors);
    }
#pragma unroll
    for (float& each : z) each = exponential(each);
    return z;
  }
};

// A row is read once and stays in registers: a thread holds kVectors of its vectors, as far apart
// as the row has threads, and perhaps one element at its edges.
//
// The exponentials are taken relative to the maximum of the thread's warp. So the warps of a row,
// and the blocks of a cluster, synchronize once, for maxima and sums together.
template <class T, class S, Masking kMasking>
FUSEDOPS_DEVICE void compute_row(T* __restrict__ y, const T* __restrict__ scores, unsigned at,
                                 const SoftmaxParams& params, RoomOf<S>& room, bool more) {
  using Own = ThreadScores<T, S, kMasking>;
  constexpr int V = kLanes<T>, kVectors = S::kVectors;
  const RowThread<S> of;
  const unsigned thread = of.thread, threads = of.threads, lanes = blockDim.x;
  const ResidentRow<T, S, kMasking> row(params, at, thread);
  const Packed* const in = row.in(scores);
  FUSEDOPS_DYNAMIC_SHARED(Packed, places);
  Own part(of, row, params, places);
  part.load(in);
  float edge = row.has_edge ? widen(scores[row.begin + row.edge_column]) : kNothing<float>;
  if (Own::kMasked && kVectors <= 4 && more) {
    prefetch_next_head<T, kVectors>(in, row.vectors, params);
  }
  if (kMasking != Masking::plain) {
    write_unseen(y, row.first, row.seen, params.visibility.keys, narrow<T>(0.0f), thread, threads);
  }

  if (row.has_edge) edge = part.addend.complete(edge, row.edge_column);
  const float top = reduce_lanes(part.largest_of(edge), lanes, Max{});
  const Packed* const own = places + (threadIdx.x ^ math::unknown_zero(top));
  const float base = base_of(top);
  const auto exponential = [&](float x) { return two_to((x - base) * params.factor); };
  edge = exponential(edge);
  float sum = edge;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (part.absent(k)) break;
    sum += sum_of(part.take(k, own, exponential));
  }
  sum = reduce_lanes(sum, lanes, Sum{});
  const Peak<float> peak = room.merged({top, sum}, params.factor);
  const float share = two_to((top - peak.top) * params.factor) * inverse(peak.sum);

  Packed* const out = row.in(y);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (part.absent(k)) break;
    float (&z)[V] = part.cached[Own::kKeep ? k : 0];
    if constexpr (!Own::kKeep) part.take(k, own, exponential);
    scale(z, share);
    if (part.vector(k) < row.vectors) out[part.vector(k)] = pack(narrow<T>(z));
  }
  if (row.has_edge) y[row.begin + row.edge_column] = narrow<T>(edge * share);
  if constexpr (kMasking != Masking::plain) {
    spread_nan(y, row, share, params.visibility.keys, thread, threads);
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
      row_cluster::open(room.exchange());
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

// A kernel of softmax.cu, by the type of its elements.
template <class T>
using SoftmaxKernel = void (*)(T*, const T*, unsigned, SoftmaxParams);

}  // namespace fusedops::softmax_row
