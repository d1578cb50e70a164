// One thread's part of a row in a norm: how it is kept, summed and written.
#pragma once

#include "kernels/norm_loads.cuh"

namespace fusedops::kernels::norm_detail {

// V elements as they are kept between the passes over a row: in the arithmetic's type,
template <class T, bool kPacked>
struct Held {
  Accumulator<T> lane[kLanes<T>];
  FUSEDOPS_DEVICE void put(const Accumulator<T> (&x)[kLanes<T>]) {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) lane[i] = x[i];
  }
  FUSEDOPS_DEVICE void get(Accumulator<T> (&x)[kLanes<T>]) const {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) x[i] = lane[i];
  }
  FUSEDOPS_DEVICE void end_pass(Accumulator<T>) {}
};
// or packed, half the registers, and widened again by each pass.
template <class T>
struct Held<T, true> {
  unsigned word[kVectorBytes / sizeof(unsigned)];
  FUSEDOPS_DEVICE void put(const Vector<T>& x) { memcpy(word, &x, sizeof(x)); }
  FUSEDOPS_DEVICE void get(Accumulator<T> (&x)[kLanes<T>]) const {
    Vector<T> in;
    memcpy(&in, word, sizeof(in));
    widen(x, in);
  }
  // Or the compiler would keep what the pass has widened, or widen it again before its result.
  FUSEDOPS_DEVICE void end_pass(float result) {
    const unsigned zero = math::unknown_zero(result);
#pragma unroll
    for (unsigned& w : word) w ^= zero;
  }
};

template <class F, class S>
struct Part {
  using T = typename F::T;
  Held<T, S::kPacked> vector[S::kVectors];
  Accumulator<T> edge;  // an element outside the whole vectors

  // After a pass over the row, with what it has found.
  FUSEDOPS_DEVICE void end_pass(Accumulator<T> result) {
#pragma unroll
    for (auto& one : vector) one.end_pass(result);
  }
};

// From what was loaded to the row; a sum is stored in `sum` where that is not null.
template <class F, class S, Rows kRows>
FUSEDOPS_DEVICE void take(Part<F, S>& part, Loads<F, S, kRows>& in, const Tensors<typename F::T>& t,
                          const Place<typename F::T, kRows>& p, typename F::T* sum) {
  using T = typename F::T;
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
  const auto add = [](A(&x)[V], const Vector<T>& other) {
    A y[V];
    widen(y, other);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += y[i];
  };
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    if constexpr (S::kPacked) {
      part.vector[k].put(in.x[k]);
    } else {
      A x[V];
      widen(x, in.x[k]);
      if (F::adds_bias(t)) add(x, in.bias.next(k, in.of_bias(t, p)));
      if (F::adds_residual(t)) add(x, in.residual[F::kAdds == Adds::nothing ? 0 : k]);
      if (F::kAdds != Adds::nothing && sum && p.has(k)) store(p.of_row(sum, k), narrow<T>(x));
      part.vector[k].put(x);
    }
  }
  part.edge = 0;
  if (p.has_edge()) {
    part.edge = widen(in.edge_x);
    if (F::adds_bias(t)) part.edge += widen(t.bias[p.edge_column()]);
    if (F::adds_residual(t)) part.edge += widen(in.edge_residual);
    if (F::kAdds != Adds::nothing && sum) sum[p.row + p.edge_column()] = narrow<T>(part.edge);
  }
}

// The sum over the thread's elements of `of(element)`.
template <class F, class S, Rows kRows, class Of>
FUSEDOPS_DEVICE Accumulator<typename F::T> sum_of(const Part<F, S>& part,
                                                  const Place<typename F::T, kRows>& p, Of of) {
  using A = Accumulator<typename F::T>;
  constexpr int V = kLanes<typename F::T>;
  A sum = p.has_edge() ? of(part.edge) : 0;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    A x[V];
    part.vector[k].get(x);
    A even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < V; i += 2) {
      even += of(x[i]);
      odd += of(x[i + 1]);
    }
    sum += p.has(k) ? even + odd : 0;
  }
  return sum;
}

// `gains` have been started.
template <class F, class S, Rows kRows, class A>
FUSEDOPS_DEVICE void write(const Part<F, S>& part, const Scale<A>& by,
                           const Tensors<typename F::T>& t, Gains<F, S, kRows>& gains,
                           const Place<typename F::T, kRows>& p) {
  using T = typename F::T;
  constexpr int V = kLanes<T>;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    A x[V], gamma[V], beta[V];
    part.vector[k].get(x);
    const auto gain = gains.next(k, t, p);
    widen(gamma, gain.gamma);
    if constexpr (F::kCentered) widen(beta, gain.beta);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (F::kCentered) {
        x[i] = fma((x[i] - by.mean) * by.scale, gamma[i], beta[i]);
      } else {
        x[i] = x[i] * by.scale * gamma[i];
      }
    }
    if (p.has(k)) store(p.of_row(t.y, k), narrow<T>(x));
  }
  if (p.has_edge()) {
    const std::int64_t column = p.edge_column();
    A x = (part.edge - by.mean) * by.scale * widen(t.gamma[column]);
    if constexpr (F::kCentered) x += widen(t.beta[column]);
    t.y[p.row + column] = narrow<T>(x);
  }
}

}  // namespace fusedops::kernels::norm_detail
