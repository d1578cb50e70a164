// A row of attention scores: which keys its query sees, and the maximum and sum that its threads
// find together.
#pragma once

#include <limits>

#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"
#include "kernels/softmax.h"
#include "kernels/unaligned.cuh"

namespace fusedops::softmax_row {

using kernels::ScoreBias;

constexpr double kLog2E = 1.4426950408889634;

template <class A>
constexpr A kNothing = -std::numeric_limits<A>::infinity();  // the score of a dropped key

FUSEDOPS_DEVICE float two_to(float x) { return math::exp2_fast(x); }
FUSEDOPS_DEVICE double two_to(double x) { return ::exp2(x); }

template <class Index>
struct RowIndex {
  Index batch, head, query;
};

template <class Index>
FUSEDOPS_DEVICE std::int64_t row_number(const RowIndex<Index>& index,
                                        const kernels::Softmax& call) {
  return (index.batch * call.heads + index.head) * call.queries + index.query;
}

// Where the row's part of an added tensor begins.
template <class Index>
FUSEDOPS_DEVICE std::int64_t start(const ScoreBias& bias, const RowIndex<Index>& index) {
  return index.batch * bias.batch + index.head * bias.head + index.query * bias.query;
}

// The keys that a query sees: from `first` up to, not including, `end`.
template <class Index>
struct KeyRange {
  Index first, end;
};

// Which keys each query sees.
template <class Index>
struct Visibility {
  Index keys;
  Index offset;  // a query's own key is key query + offset
  Index window;  // 0: all
  bool causal;

  explicit Visibility(const kernels::Softmax& call)
      : keys(static_cast<Index>(call.keys)),
        offset(static_cast<Index>(call.keys - call.queries)),
        window(static_cast<Index>(call.window < call.keys + call.queries ? call.window : 0)),
        causal(call.causal) {}

  FUSEDOPS_DEVICE KeyRange<Index> of(Index query) const {
    KeyRange<Index> seen{0, keys};
    if (causal) seen.end = max(min(query + offset + 1, keys), Index{0});
    if (window > 0) seen.first = min(max(query + offset + 1 - window, Index{0}), seen.end);
    return seen;
  }
};

// scale z + mask; or, with a boolean mask, scale z if it is true and -inf if not.
template <class A, class M>
FUSEDOPS_DEVICE A with_mask(A scale, A z, M mask) {
  if constexpr (std::is_same_v<M, bool>) {
    return mask ? scale * z : kNothing<A>;
  } else {
    return fma(scale, z, static_cast<A>(widen(mask)));
  }
}

// Element `at` of an added tensor.
template <class T>
FUSEDOPS_DEVICE Accumulator<T> value_of(const ScoreBias& bias, std::int64_t at) {
  return bias.type == ScoreBias::Type::float32 ? static_cast<const float*>(bias.data)[at]
                                               : widen(static_cast<const T*>(bias.data)[at]);
}

template <class T>
FUSEDOPS_DEVICE Accumulator<T> slope_of(const ScoreBias& alibi, std::int64_t head) {
  return value_of<T>(alibi, head * alibi.head);
}

// The maximum of some scores, and the sum of 2^(factor (score - maximum)).
template <class A>
struct Peak {
  A top, sum;
};

// The number that scores are taken relative to: the maximum, or 0 for a row without keys, so that
// 2^(-inf) is 0 and not NaN.
template <class A>
FUSEDOPS_DEVICE A base_of(A top) {
  return top == kNothing<A> ? 0 : top;
}

// Merges the peaks of `lanes` neighbouring threads, a power of two. The result's `top` is a base.
template <class A>
FUSEDOPS_DEVICE Peak<A> merged(const Peak<A>& own, A factor, int lanes) {
  const A top = base_of(warp::reduce(own.top, lanes, Max{}));
  return {top, warp::reduce(own.sum * two_to((own.top - top) * factor), lanes, Sum{})};
}

// Merges the peaks of a row's warps; each thread passes its warp's. The result's `top` is a base.
// `shared` has room for a peak of each warp of the block. Rows no wider than a warp do not use it.
template <class A>
FUSEDOPS_DEVICE Peak<A> peak_of_row(Peak<A> of_warp, A factor, int threads, Peak<A>* shared) {
  if (threads <= warp::kWidth) return {base_of(of_warp.top), of_warp.sum};
  const unsigned thread = threadIdx.x;
  const int warps = threads / warp::kWidth;
  shared += threadIdx.y * warps;
  if (thread % warp::kWidth == 0) shared[thread / warp::kWidth] = of_warp;
  __syncthreads();
  const int lanes = warps == 1 ? 1 : 1 << (warp::kWidth - __clz(warps - 1));  // power of two
  const int lane = static_cast<int>(thread) & (lanes - 1);
  return merged(lane < warps ? shared[lane] : Peak<A>{kNothing<A>, 0}, factor, lanes);
}

// 1 / sum; 0 for a row that drops all keys.
FUSEDOPS_DEVICE float inverse(float sum) { return sum == 0 ? 0 : math::reciprocal_fast(sum); }
FUSEDOPS_DEVICE double inverse(double sum) { return sum == 0 ? 0 : 1 / sum; }

// Writes `nothing` to the keys that a query does not see. The row begins at element `row` of `y`.
// All of the row's `threads` threads must call it; `thread` is the calling one.
template <class T, class Index>
FUSEDOPS_DEVICE void write_unseen(T* __restrict__ y, std::int64_t row, const KeyRange<Index>& seen,
                                  Index keys, T nothing, int thread, int threads) {
  if (seen.end - seen.first == keys) return;
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const Index from = side == 0 ? 0 : seen.end;
    const auto span = span_at<kLanes<T>>(row + from, (side == 0 ? seen.first : keys) - from);
    T* const out = y + row + from;
    Packed* const vectors = as_packed(out + span.head);
#pragma unroll 1
    for (Index v = thread; v < span.vectors; v += static_cast<Index>(threads)) {
      vectors[v] = pack_copies(nothing);
    }
    if (thread < span.edges) out[span.template edge<kLanes<T>>(thread)] = nothing;
  }
}

}  // namespace fusedops::softmax_row
