// y = softmax(scale scores + alibi + mask) over the keys, [batch, heads, queries, keys], for every
// call: any dtype, length, mask and alibi. A row is read twice, for its maximum and sum and for the
// results. Several blocks share a long row; then these are two launches.
#include <algorithm>

#include "kernels/softmax.h"
#include "kernels/softmax_row.cuh"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/fetch.h"
#include "platform/overlap.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace softmax_streamed_detail {

using namespace softmax_row;

constexpr int kMostThreads = 512;
constexpr int kPrefetched = 3;  // vectors of a thread in flight while it computes one

constexpr std::int64_t kMostParts = 32;  // one lane of a warp merges each part

// How many blocks share a row: several, if rows are long and too few to fill a GPU. The number is
// the same on every GPU, so that the sum's bits are too.
inline std::int64_t parts_of(const Softmax& call) {
  constexpr std::int64_t kLong = 1 << 15, kKeys = 8192, kBlocks = 256;
  if (call.keys <= kLong) return 1;
  return std::clamp<std::int64_t>(kBlocks / call.rows(), 1,
                                  std::min(call.keys / kKeys, kMostParts));
}

template <class A>
struct StreamedParams {
  Softmax call;
  Visibility<std::int64_t> visibility;
  A scale;
  int parts;       // blocks that share a row
  int first, end;  // passes over the scores: 0 finds the peak, 1 writes the results
  Peak<A>* peaks;  // the peaks of the rows' parts; null if a row has one part
};

// One row: its visible keys, and where its tensors begin.
template <class T>
struct StreamedRow {
  using A = Accumulator<T>;

  const StreamedParams<A>& params;
  KeyRange<std::int64_t> seen;
  std::int64_t number;       // number of the row
  std::int64_t first;        // index of the row's first score
  std::int64_t mask, alibi;  // index at the first visible key
  A slope;

  FUSEDOPS_DEVICE StreamedRow(const StreamedParams<A>& of, const RowIndex<std::int64_t>& index)
      : params(of),
        seen(params.visibility.of(index.query)),
        number(row_number(index, params.call)),
        first(number * params.call.keys),
        mask(start(params.call.mask, index) + seen.first * params.call.mask.key),
        alibi(start(params.call.alibi, index) + seen.first * params.call.alibi.key),
        slope(params.call.slopes ? slope_of<T>(params.call.alibi, index.head) : 0) {}

  // The peaks of the row's parts.
  FUSEDOPS_DEVICE Peak<A>* peaks() const { return params.peaks + number * params.parts; }

  // Adds mask and alibi to the scores of the `kCount` keys from `column` on.
  template <int kCount>
  FUSEDOPS_DEVICE void complete(A (&z)[kCount], std::int64_t column) const {
    switch (params.call.mask.type) {
      case ScoreBias::Type::none:
#pragma unroll
        for (A& each : z) each *= params.scale;
        break;
      case ScoreBias::Type::like_scores:
        add_mask<T>(z, column);
        break;
      case ScoreBias::Type::float32:
        add_mask<float>(z, column);
        break;
      case ScoreBias::Type::boolean:
        add_mask<bool>(z, column);
    }
    if (params.call.slopes) {
      const auto from_last = static_cast<A>(column - (seen.end - seen.first - 1));
#pragma unroll
      for (int i = 0; i < kCount; ++i) z[i] = fma(slope, from_last + static_cast<A>(i), z[i]);
    } else if (params.call.alibi.type != ScoreBias::Type::none) {
      std::int64_t at = alibi + column * params.call.alibi.key;
#pragma unroll
      for (int i = 0; i < kCount; ++i, at += params.call.alibi.key) {
        z[i] += value_of<T>(params.call.alibi, at);
      }
    }
  }

 private:
  template <class M, int kCount>
  FUSEDOPS_DEVICE void add_mask(A (&z)[kCount], std::int64_t column) const {
    const std::int64_t step = params.call.mask.key;
    const M* from = static_cast<const M*>(params.call.mask.data) + mask + column * step;
#pragma unroll
    for (int i = 0; i < kCount; ++i, from += step) z[i] = with_mask(params.scale, z[i], *from);
  }
};

// The calling thread, among all threads that share a row.
struct Lane {
  int thread, threads;
};

// Calls take(z, column) for each of the thread's vectors, and for single elements at the edges,
// with mask and alibi added.
template <class T, class Take>
FUSEDOPS_DEVICE void for_each(const StreamedRow<T>& row, const T* __restrict__ scores,
                              const Lane& lane, const Take& take) {
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  const std::int64_t thread = lane.thread, threads = lane.threads;
  const std::int64_t begin = row.first + row.seen.first;
  const auto span = span_at<V>(begin, row.seen.end - row.seen.first);
  const Packed* const in = as_packed(scores + begin + span.head);
  Packed raw[kPrefetched + 1];
#pragma unroll
  for (int k = 0; k < kPrefetched; ++k) {
    if (thread + k * threads < span.vectors) raw[k] = in[thread + k * threads];
  }
#pragma unroll 1
  for (std::int64_t v = thread; v < span.vectors; v += threads) {
    if (v + kPrefetched * threads < span.vectors) raw[kPrefetched] = in[v + kPrefetched * threads];
    A z[V];
    widen<T>(z, raw[0]);
    row.complete(z, span.head + v * V);
    take(z, span.head + v * V);
#pragma unroll
    for (int k = 0; k < kPrefetched; ++k) raw[k] = raw[k + 1];
  }
  if (thread < span.edges) {
    const std::int64_t column = span.template edge<V>(static_cast<int>(thread));
    A z[1] = {widen(scores[begin + column])};
    row.complete(z, column);
    take(z, column);
  }
}

// Reads the row twice: once for the maximum and the sum, once for the results. If the row has
// several parts, the first launch writes their peaks to memory and the second reads them.
template <class T>
FUSEDOPS_DEVICE void compute_row(T* __restrict__ y, const T* __restrict__ scores,
                                 const StreamedRow<T>& row, int part,
                                 Peak<Accumulator<T>>* shared) {
  using A = Accumulator<T>;
  const A factor = static_cast<A>(kLog2E);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const Lane lane{part * threads + thread, row.params.parts * threads};
  T* const out = y + row.first + row.seen.first;
  Peak<A> own{kNothing<A>, 0}, peak{};
  A share = 0;
  if (row.params.first > 0) {
    const int other = thread % warp::kWidth;
    if (other < row.params.parts) own = row.peaks()[other];
    peak = merged(own, factor, warp::kWidth);
    share = inverse(peak.sum);
  }
#pragma unroll 1
  for (int pass = row.params.first; pass < row.params.end; ++pass) {
    for_each(row, scores, lane, [&](auto& z, std::int64_t column) {
      if (pass == 0) {
        A top = own.top;
        for (const A each : z) top = fmax(top, each);
        const A base = base_of(top);
        own.sum *= two_to((own.top - base) * factor);
        for (const A each : z) own.sum += two_to((each - base) * factor);
        own.top = top;
        return;
      }
      for (A& each : z) each = two_to((each - peak.top) * factor) * share;
      if constexpr (sizeof(z) > sizeof(A)) {
        store(out + column, narrow<T>(z));
      } else {
        out[column] = narrow<T>(z[0]);
      }
    });
    if (pass > 0) break;
    const A top = warp::reduce(own.top, warp::kWidth, Max{});
    own.sum *= two_to((own.top - base_of(top)) * factor);
    const A sum = warp::reduce(own.sum, warp::kWidth, Sum{});
    peak = peak_of_row<A>({top, sum}, factor, threads, shared);
    if (row.params.end == 1) {
      // A part that drops all keys has no maximum: -inf, not the 0 that stands in for it.
      if (thread == 0) row.peaks()[part] = {peak.sum == 0 ? kNothing<A> : peak.top, peak.sum};
      return;
    }
    share = inverse(peak.sum);
  }
  // NaN if the row has a NaN.
  write_unseen(y, row.first, row.seen, row.params.visibility.keys, narrow<T>(0 * share),
               lane.thread, lane.threads);
}

// A block computes one row, or one part of a row, at a time.
template <class T>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(kMostThreads, sizeof(T) < 8 ? 2 : 1)
    streamed_kernel(T* __restrict__ y, const T* __restrict__ scores,
                    const StreamedParams<Accumulator<T>> params) {
  __shared__ Peak<Accumulator<T>> shared[kMostThreads / warp::kWidth];
  overlap::wait();
  for (std::int64_t batch = blockIdx.z; batch < params.call.batch; batch += gridDim.z) {
    for (std::int64_t head = blockIdx.y; head < params.call.heads; head += gridDim.y) {
      for (std::int64_t at = blockIdx.x; at < params.call.queries * params.parts; at += gridDim.x) {
        std::int64_t query = at / params.parts;
        const int part = static_cast<int>(at - query * params.parts);
        fetch::make_opaque(query);  // as in softmax_backward.cu
        compute_row(y, scores, StreamedRow<T>(params, {batch, head, query}), part, shared);
        __syncthreads();  // before shared memory is used again
      }
    }
  }
}

}  // namespace softmax_streamed_detail

using namespace softmax_streamed_detail;

std::int64_t softmax_streamed_scratch(const Softmax& call) {
  const std::int64_t parts = parts_of(call);
  return parts > 1 ? call.rows() * parts * static_cast<std::int64_t>(sizeof(Peak<double>)) : 0;
}

gpu::Status softmax_streamed(const Softmax& call, void* y, const void* scores, void* scratch,
                             gpu::Stream stream) {
  const std::int64_t parts = parts_of(call);
  const auto most = [](std::int64_t wanted, std::int64_t bound) {
    return static_cast<unsigned>(std::min(wanted, bound));
  };
  const dim3 grid(most(call.queries * parts, 1 << 30), most(call.heads, 65535),
                  most(call.batch, 65535));
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    using A = Accumulator<T>;
    const std::int64_t wanted = ceil_div(call.keys, std::int64_t{kLanes<T>} * kPrefetched);
    const dim3 threads(most(ceil_div(wanted, gpu::kWarpSize) * gpu::kWarpSize, kMostThreads));
    const auto passes = [&](int first, int end) {
      const StreamedParams<A> params{call,
                                     Visibility<std::int64_t>(call),
                                     static_cast<A>(call.scale),
                                     static_cast<int>(parts),
                                     first,
                                     end,
                                     static_cast<Peak<A>*>(scratch)};
      return overlap::launch(&streamed_kernel<T>, grid, threads, stream, static_cast<T*>(y),
                             static_cast<const T*>(scores), params);
    };
    if (parts == 1) return passes(0, 2);
    const gpu::Status status = passes(0, 1);
    return status == gpu::kSuccess ? passes(1, 2) : status;
  });
}

}  // namespace fusedops::kernels
