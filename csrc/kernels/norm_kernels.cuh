// The norm kernels: row_kernel for rows that fit into the registers of their threads,
// general_kernel for rows of any length and type.
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/reduce.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels::norm_detail {

// Prefetches to L2 before the previous kernel ends: the rows of the first blocks, and the tensors
// that all rows share. One thread of a row does it.
template <class F, RowLayout kLayout>
FUSEDOPS_DEVICE void ask_early(const Tensors<typename F::T>& t, int cols,
                               const RowSlice<typename F::T, kLayout>& p) {
  constexpr unsigned kFirst = 1 << 17;  // threads; blocks of few registers have more
  if (p.thread != 0) return;
  if (blockIdx.x * (blockDim.x * blockDim.y) < kFirst) {
    const unsigned bytes = static_cast<unsigned>(p.span.vectors) * kVectorBytes;
    fetch::into_l2(p.of_row(t.x, 0), bytes);
    if (F::adds_residual(t)) fetch::into_l2(p.of_row(t.residual, 0), bytes);
  }
  if (blockIdx.x == 0 && threadIdx.y == 0) {
    const unsigned bytes = static_cast<unsigned>(cols) / p.V * kVectorBytes;
    fetch::into_l2(t.gamma, bytes);
    if constexpr (F::kCentered) fetch::into_l2(t.beta, bytes);
    if (F::adds_bias(t)) fetch::into_l2(t.bias, bytes);
  }
}

template <class S>
FUSEDOPS_DEVICE float sum_of_row(float value, float* shared) {
  const int threads = static_cast<int>(blockDim.x);
  if (S::kNarrow) return warp::reduce(value, threads, Sum{});
  return reduce_block<Sum, S::kMost>(value, threads, shared);
}

template <class F, class S, RowLayout kLayout>
FUSEDOPS_DEVICE Scale<float> scale_of(RegisterRow<F, S>& part,
                                      const RowSlice<typename F::T, kLayout>& p,
                                      const Constants<float>& c, float* shared,
                                      float* more_shared) {
  float mean = 0;
  if constexpr (F::kCentered) {
    mean = c.exact_mean(sum_of_row<S>(sum_of(part, p, [](float x) { return x; }), shared));
    part.end_pass(mean);
    mean = part.subtract(mean);
  }
  const float own = sum_of(part, p, [=](float x) { return (x - mean) * (x - mean); });
  const float squares = sum_of_row<S>(own, more_shared);
  part.end_pass(squares);
  return {mean, math::inverse_sqrt(fma(squares, c.inverse_n, c.eps))};
}

// One read and one write of each row. A narrow row has blockDim.x threads, a power of two up to a
// warp's width, and a block has blockDim.y such rows. A wide row has a block.
template <class F, class S, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(S::kBlock, S::kBlocks)
    row_kernel(const Tensors<typename F::T> t, std::int64_t rows, int cols,
               const Constants<float> c) {
  using T = typename F::T;
  __shared__ float shared[2][kMostWarps];
  std::int64_t row = blockIdx.x;
  if constexpr (S::kNarrow) row = row * blockDim.y + threadIdx.y;
  // Threads past the last row compute that row again and do not write: a reduction needs all
  // threads of a warp.
  const bool live = !S::kNarrow || row < rows;
  RowSlice<T, kLayout> p(live ? row : rows - 1, cols);
  ask_early<F>(t, cols, p);
  overlap::wait_in_turn();
  Loads<F, S, kLayout> in;
  RegisterRow<F, S> part;
  Gains<F, S, kLayout> gains;
  in.start(t, p);
  gains.start(t, p);
  take(part, in, t, p, live ? t.sum : nullptr);
  const Scale<float> by = scale_of(part, p, c, shared[0], shared[1]);
  if (live) write(part, by, t, gains, p);
}

using General = Schedule<2, 1024, 0>;

// The mean of some elements, and the sum of their squared distances from it. It is merged part by
// part (Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979), so a mean far from 0 costs no digits.
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

template <class F, class S, RowLayout kLayout, class A>
FUSEDOPS_DEVICE void gather(Moments<A>& moments, const RegisterRow<F, S>& part,
                            const RowSlice<typename F::T, kLayout>& p) {
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

// A row that its threads hold at once is read once. A longer row is read twice: for its mean and
// variance, and then, from its end, which is still in the cache, to be written. A block has
// blockDim.y rows of blockDim.x threads, as reduce_row requires, and at least as many threads as
// two vectors have elements.
template <class F>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(General::kMost, General::kBlocks)
    general_kernel(const Tensors<typename F::T> t, std::int64_t rows, std::int64_t cols,
                   const Constants<Accumulator<typename F::T>> c) {
  using T = typename F::T;
  using A = Accumulator<T>;
  __shared__ A shared[2][kMostWarps];
  overlap::wait();
  int buffer = 1;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    // Threads past the last row compute that row again and do not write: a reduction needs all
    // threads of a warp.
    const std::int64_t row = first + threadIdx.y;
    const bool live = row < rows;
    RowSlice<T, RowLayout::any> p(live ? row : rows - 1, cols);
    const std::int64_t step = static_cast<std::int64_t>(General::kVectors) * blockDim.x;
    Loads<F, General, RowLayout::any> in;
    RegisterRow<F, General> part;
    Gains<F, General, RowLayout::any> gains;
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
        by = scale_of<F>(own, c, shared[0], shared[buffer]);
        writes = true;  // start with this part: it is still in registers
      }
      if (live) write(part, by, t, gains, p);
      if (p.start == 0) break;
      p.start -= step;
    }
    if constexpr (!F::kCentered) buffer ^= 1;
  }
}

}  // namespace fusedops::kernels::norm_detail
