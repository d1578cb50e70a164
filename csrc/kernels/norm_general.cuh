// Norms of rows of any length and type. A row that its threads hold at once is read once; a longer
// one twice, for its mean and variance and then, from its end, where it is still in the cache, to
// be written.
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/reduce.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels::norm_detail {

using General = Shape<2, 1024, 1, 0>;

// Mean of some elements, and the sum of their squared distances from it. Merged part by part
// (Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979), it loses no digits to a mean far from 0.
template <class A>
struct Moments {
  A count = 0, mean = 0, squares = 0;

  FUSEDOPS_DEVICE void merge(A more, A its_mean, A its_squares) {
    if (more == 0) return;
    const A all = count + more, apart = its_mean - mean, share = more / all;
    mean = fma(apart, share, mean);
    squares += fma(apart * apart, count * share, its_squares);
    count = all;
  }
};

template <class F, class S, Rows kRows, class A>
FUSEDOPS_DEVICE void gather(Moments<A>& moments, const Part<F, S>& part,
                            const Place<typename F::T, kRows>& p) {
  if constexpr (F::kCentered) {
    A count = p.has_edge() ? 1 : 0;
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) count += p.has(k) ? p.V : 0;
    const A mean = sum_of(part, p, [](A x) { return x; }) / (count == 0 ? 1 : count);
    moments.merge(count, mean, sum_of(part, p, [=](A x) { return (x - mean) * (x - mean); }));
  } else {
    moments.squares += sum_of(part, p, [](A x) { return x * x; });
  }
}

template <class F, class A>
FUSEDOPS_DEVICE Scale<A> scale_of(const Moments<A>& own, const Constants<A>& c, A* shared,
                                  A* more_shared) {
  const auto of_row = [](A value, A* room) {
    return reduce_row<Sum>(value, static_cast<int>(blockDim.x), room);
  };
  A mean = 0, squares = own.squares;
  if constexpr (F::kCentered) {
    mean = c.exact_mean(of_row(own.count * own.mean, shared));
    squares = fma(own.count, (own.mean - mean) * (own.mean - mean), squares);
  }
  return {mean, math::inverse_sqrt(fma(of_row(squares, more_shared), c.inverse_n, c.eps))};
}

// A block has blockDim.y rows, blockDim.x threads each: as reduce_row wants them, and at least two
// vectors' elements.
template <class F>
__global__ void __launch_bounds__(General::kMost, General::kBlocks)
    general_kernel(const Tensors<typename F::T> t, std::int64_t rows, std::int64_t cols,
                   const Constants<Accumulator<typename F::T>> c) {
  using T = typename F::T;
  using A = Accumulator<T>;
  __shared__ A shared[2][kMostWarps];
  overlap::wait();
  int turn = 1;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    // Past the end the last row once more, unwritten: all of a warp take part in reductions.
    const std::int64_t row = first + threadIdx.y;
    const bool live = row < rows;
    Place<T, Rows::any> p(live ? row : rows - 1, cols);
    const std::int64_t step = static_cast<std::int64_t>(General::kVectors) * blockDim.x;
    Loads<F, General, Rows::any> in;
    Part<F, General> part;
    Gains<F, General, Rows::any> gains;
    Moments<A> own;
    Scale<A> by;
    for (bool writes = false;;) {
      const bool last = p.start + step >= p.span.vectors;
      in.start(t, p);
      take(part, in, t, p, live && (writes || last) ? t.sum : nullptr);
      if (!writes) {
        gather(own, part, p);
        if (!last) {
          p.start += step;
          continue;
        }
        by = scale_of<F>(own, c, shared[0], shared[turn]);
        writes = true;  // this part first: it is still held
      }
      if (live) write(part, by, t, gains, p);
      if (p.start == 0) break;
      p.start -= step;
    }
    if constexpr (!F::kCentered) turn ^= 1;
  }
}

}  // namespace fusedops::kernels::norm_detail
