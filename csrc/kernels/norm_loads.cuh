// What one thread of a norm loads.
#pragma once

#include "kernels/norm_place.cuh"

namespace fusedops::kernels::norm_detail {

// What a thread reads for each of its vectors: `load` puts that for vector k where it is told,
// S::kAhead vectors before it is wanted.
template <class S, class Value>
struct Ahead {
  Value value[S::kAhead == 0 ? 1 : S::kAhead];

  template <class Load>
  FUSEDOPS_DEVICE void start(const Load& load) {
#pragma unroll
    for (int k = 0; k < S::kAhead; ++k) load(value[k], k);
  }
  // For vector k, in the order of the vectors.
  template <class Load>
  FUSEDOPS_DEVICE Value next(int k, const Load& load) {
    if constexpr (S::kAhead == 0) {
      load(value[0], k);
      return value[0];
    } else {
      const Value now = value[k % S::kAhead];
      if (k + S::kAhead < S::kVectors) load(value[k % S::kAhead], k + S::kAhead);
      return now;
    }
  }
};

// What is summed, as it is loaded.
template <class F, class S, Rows kRows>
struct Loads {
  using T = typename F::T;
  using P = Place<T, kRows>;
  Vector<T> x[S::kVectors];
  Vector<T> residual[F::kAdds == Adds::nothing ? 1 : S::kVectors];
  Ahead<S, Vector<T>> bias;
  T edge_x, edge_residual;

  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const P& p) {
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      if (!p.skips(k)) x[k] = load(p.of_row(t.x, k));
    }
    if (F::adds_residual(t)) {
#pragma unroll
      for (int k = 0; k < S::kVectors; ++k) {
        if (!p.skips(k)) residual[k] = load(p.of_row(t.residual, k));
      }
    }
    if (F::adds_bias(t)) bias.start(of_bias(t, p));
    if (p.has_edge()) {
      edge_x = t.x[p.row + p.edge_column()];
      if (F::adds_residual(t)) edge_residual = t.residual[p.row + p.edge_column()];
    }
  }

  FUSEDOPS_DEVICE static auto of_bias(const Tensors<T>& t, const P& p) {
    return [&](Vector<T>& to, int k) {
      if (!p.skips(k)) to = p.of_columns(t.bias, k);
    };
  }
};

// gamma and beta of the columns, as they are loaded.
template <class F, class S, Rows kRows>
struct Gains {
  using T = typename F::T;
  using P = Place<T, kRows>;
  struct Gain {
    Vector<T> gamma, beta;
  };
  Ahead<S, Gain> ahead;

  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const P& p) { ahead.start(of_gains(t, p)); }
  FUSEDOPS_DEVICE Gain next(int k, const Tensors<T>& t, const P& p) {
    return ahead.next(k, of_gains(t, p));
  }

 private:
  FUSEDOPS_DEVICE static auto of_gains(const Tensors<T>& t, const P& p) {
    return [&](Gain& to, int k) {
      if (p.skips(k)) return;
      to.gamma = p.of_columns(t.gamma, k);
      if constexpr (F::kCentered) to.beta = p.of_columns(t.beta, k);
    };
  }
};

}  // namespace fusedops::kernels::norm_detail
