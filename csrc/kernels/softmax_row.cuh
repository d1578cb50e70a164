// A row of attention scores: which keys it keeps, what is added to it, and the maximum and the sum
// that its threads find together.
#pragma once

#include <limits>

#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"
#include "kernels/softmax.h"
#include "kernels/unaligned.cuh"

namespace fusedops::softmax_row {

using kernels::Beside;

constexpr double kLog2E = 1.4426950408889634;

template <class A>
constexpr A kNothing = -std::numeric_limits<A>::infinity();  // the score of a key that is dropped

FUSEDOPS_DEVICE float two_to(float x) { return math::exp2_fast(x); }
FUSEDOPS_DEVICE double two_to(double x) { return ::exp2(x); }

template <class Index>
struct Place {
  Index batch, head, query;
};

template <class Index>
FUSEDOPS_DEVICE std::int64_t row_number(const Place<Index>& place, const kernels::Softmax& call) {
  return (place.batch * call.heads + place.head) * call.queries + place.query;
}

// Where the row of a tensor beside the scores begins.
template <class Index>
FUSEDOPS_DEVICE std::int64_t start(const Beside& beside, const Place<Index>& place) {
  return place.batch * beside.batch + place.head * beside.head + place.query * beside.query;
}

// The keys that a query sees: from `first` on, up to `end`.
template <class Index>
struct Keys {
  Index first, end;
};

// Which those are.
template <class Index>
struct Sight {
  Index keys;
  Index ahead;   // the key of a query's own position is so many after it
  Index window;  // 0: all
  bool causal;

  explicit Sight(const kernels::Softmax& call)
      : keys(static_cast<Index>(call.keys)),
        ahead(static_cast<Index>(call.keys - call.queries)),
        window(static_cast<Index>(call.window < call.keys + call.queries ? call.window : 0)),
        causal(call.causal) {}

  FUSEDOPS_DEVICE Keys<Index> of(Index query) const {
    Keys<Index> seen{0, keys};
    if (causal) seen.end = max(min(query + ahead + 1, keys), Index{0});
    if (window > 0) seen.first = min(max(query + ahead + 1 - window, Index{0}), seen.end);
    return seen;
  }
};

// scale z + mask; a boolean mask keeps or drops.
template <class A, class M>
FUSEDOPS_DEVICE A with_mask(A scale, A z, M mask) {
  if constexpr (std::is_same_v<M, bool>) {
    return mask ? scale * z : kNothing<A>;
  } else {
    return fma(scale, z, static_cast<A>(widen(mask)));
  }
}

// Element `at` of a tensor of numbers beside the scores.
template <class T>
FUSEDOPS_DEVICE Accumulator<T> value_of(const Beside& beside, std::int64_t at) {
  return beside.type == Beside::Type::float32 ? static_cast<const float*>(beside.data)[at]
                                              : widen(static_cast<const T*>(beside.data)[at]);
}

template <class T>
FUSEDOPS_DEVICE Accumulator<T> slope_of(const Beside& alibi, std::int64_t head) {
  return value_of<T>(alibi, head * alibi.head);
}

// The maximum of some scores, and the sum of 2^(factor (score - maximum)).
template <class A>
struct Peak {
  A top, sum;
};

// What scores are taken relative to: 0 where there are none, so that 2^(-inf) is 0 and not NaN.
template <class A>
FUSEDOPS_DEVICE A base_of(A top) {
  return top == kNothing<A> ? 0 : top;
}

// The peak of all that so many neighbouring lanes have, a power of two; its `top` is a base.
template <class A>
FUSEDOPS_DEVICE Peak<A> merged(const Peak<A>& own, A factor, int lanes) {
  const A top = base_of(warp::reduce(own.top, lanes, Max{}));
  return {top, warp::reduce(own.sum * two_to((own.top - top) * factor), lanes, Sum{})};
}

// From the peaks of the warps of a row, each known to all threads of its warp, to the row's, whose
// `top` is a base. `shared` has room for the warps of the block. As with reduce_row, rows no wider
// than a warp need none.
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

// 1 / sum; 0 for a row that keeps nothing.
FUSEDOPS_DEVICE float inverse(float sum) { return sum == 0 ? 0 : math::reciprocal_fast(sum); }
FUSEDOPS_DEVICE double inverse(double sum) { return sum == 0 ? 0 : 1 / sum; }

// Writes `nothing` to the keys that a query does not see. The row begins at element `row` of `y`,
// and all of its `threads` take part, of which this is `thread`.
template <class T, class Index>
FUSEDOPS_DEVICE void write_unseen(T* __restrict__ y, std::int64_t row, const Keys<Index>& seen,
                                  Index keys, T nothing, int thread, int threads) {
  if (seen.end - seen.first == keys) return;
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const Index from = side == 0 ? 0 : seen.end;
    const auto span = span_at<kLanes<T>>(row + from, (side == 0 ? seen.first : keys) - from);
    T* const out = y + row + from;
    Words* const vectors = as_words(out + span.head);
#pragma unroll 1
    for (Index v = thread; v < span.vectors; v += static_cast<Index>(threads)) {
      vectors[v] = filled(nothing);
    }
    if (thread < span.edges) out[span.template edge<kLanes<T>>(thread)] = nothing;
  }
}

}  // namespace fusedops::softmax_row
