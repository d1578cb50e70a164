// One thread's part of a row in a norm: where it lies, how it is loaded, held in registers, summed
// and written.
#pragma once

#include "kernels/norm_form.cuh"
#include "kernels/packed.cuh"
#include "kernels/unaligned.cuh"
#include "platform/fetch.h"

namespace fusedops::kernels::norm_detail {

// Where the thread's elements lie: at vectors `thread`, `thread + threads` and so on, counted from
// vector `start` of the row.
template <class T, RowLayout kLayout>
struct RowSlice {
  static constexpr int V = kLanes<T>;
  static constexpr bool kWhole = kLayout == RowLayout::whole;
  std::int64_t row;  // index of the row's first element
  Span span;
  std::int64_t start = 0;
  unsigned threads, thread;

  FUSEDOPS_DEVICE RowSlice(std::int64_t index, std::int64_t cols)
      : row(index * cols),
        span(kWhole ? whole_span<V>(cols) : span_of<V>(index, cols)),
        threads(blockDim.x),
        thread(threadIdx.x) {}

  FUSEDOPS_DEVICE bool has(int k) const {
    if constexpr (kLayout == RowLayout::any) return thread + k * threads < span.vectors - start;
    return thread + k * threads < static_cast<unsigned>(span.vectors);
  }
  // Whether vector k is skipped. If rows have vectors, a thread without vector k reads the row's
  // last vector again instead of skipping it: without branches the compiler keeps all loads in
  // flight.
  FUSEDOPS_DEVICE bool skips(int k) const { return kLayout == RowLayout::any && !has(k); }
  // Vector k of the thread in a [rows, cols] tensor (of_row) and in a [cols] tensor (of_columns).
  template <class Element>
  FUSEDOPS_DEVICE Element* of_row(Element* data, int k) const {
    return vector_at(data + (row + span.head), k);
  }
  // The same for a vector that the thread has. In clusters offsets may be parts of instructions.
  template <class S, class Element>
  FUSEDOPS_DEVICE Element* own_of_row(Element* data, int k) const {
    Element* const from = data + (row + span.head);
    return S::kClusters ? at(from, thread) + std::int64_t{k * threads} * V
                        : at(from, thread + k * threads);
  }
  FUSEDOPS_DEVICE Vector<T> of_columns(const T* data, int k) const {
    return columns(vector_at(data, k));
  }
  // The columns of the row's vector v, where `at` is vector v of a [cols] tensor.
  FUSEDOPS_DEVICE Vector<T> columns(const T* at) const {
    if constexpr (kWhole) {
      const auto words = fetch::often(reinterpret_cast<const char*>(at));
      Vector<T> vector;
      memcpy(&vector, &words, sizeof(vector));
      return vector;
    } else {
      return joined(load_read_only(at), load_read_only(at + (span.head == 0 ? 0 : V)),
                    static_cast<unsigned>(span.head * sizeof(T)));
    }
  }
  FUSEDOPS_DEVICE Vector<T> columns(const T* data, unsigned v) const {
    return columns(data + std::int64_t{v} * V);
  }
  FUSEDOPS_DEVICE bool has_edge() const {
    return !kWhole && start == 0 && thread < static_cast<unsigned>(span.edges);
  }
  FUSEDOPS_DEVICE std::int64_t edge_column() const {
    return span.template edge<V>(static_cast<int>(thread));
  }

 private:
  // A 32-bit offset from an address that the whole block shares takes one register instead of two.
  template <class Element>
  FUSEDOPS_DEVICE Element* vector_at(Element* data, int k) const {
    unsigned vector = thread + k * threads;
    if (kLayout != RowLayout::any) vector = min(vector, static_cast<unsigned>(span.vectors) - 1);
    return at(data, vector);
  }
  template <class Element>
  FUSEDOPS_DEVICE Element* at(Element* data, unsigned vector) const {
    using Byte = std::conditional_t<std::is_const_v<Element>, const char, char>;
    return reinterpret_cast<Element*>(reinterpret_cast<Byte*>(data + start * V) +
                                      vector * unsigned{kVectorBytes});
  }
};

// Values that a thread loads S::kPrefetched vectors before it uses them. load(to, k) loads the
// value of vector k.
template <class S, class Value>
struct Prefetched {
  Value value[S::kPrefetched == 0 ? 1 : S::kPrefetched];

  template <class Load>
  FUSEDOPS_DEVICE void start(const Load& load) {
#pragma unroll
    for (int k = 0; k < S::kPrefetched; ++k) load(value[k], k);
  }
  // The value of vector k. k must go up by one from call to call.
  template <class Load>
  FUSEDOPS_DEVICE Value next(int k, const Load& load) {
    if constexpr (S::kPrefetched == 0) {
      load(value[0], k);
      return value[0];
    } else {
      const Value now = value[k % S::kPrefetched];
      if (k + S::kPrefetched < S::kVectors) load(value[k % S::kPrefetched], k + S::kPrefetched);
      return now;
    }
  }
};

// The elements of a row that lie outside its vectors, one a thread, as loaded.
template <class F, RowLayout kLayout>
struct EdgeLoads {
  using T = typename F::T;
  T x, residual, bias;

  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const RowSlice<T, kLayout>& p) {
    if (!p.has_edge()) return;
    const std::int64_t column = p.edge_column();
    x = t.x[p.row + column];
    if (F::adds_residual(t)) residual = t.residual[p.row + column];
    if (F::adds_bias(t)) bias = t.bias[column];
  }
};

// The inputs of the sum, as loaded.
template <class F, class S, RowLayout kLayout>
struct Loads {
  using T = typename F::T;
  using P = RowSlice<T, kLayout>;
  static constexpr bool kSums = F::kAdds != Adds::nothing;
  Vector<T> x[S::kVectors];
  Vector<T> residual[kSums ? S::kVectors : 1];
  Prefetched<S, Vector<T>> bias;
  EdgeLoads<F, kLayout> edge;

  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const P& p) {
    read(x, t.x, p);
    if constexpr (kSums) {
      if (F::adds_residual(t)) read(residual, t.residual, p);
    }
    if (F::adds_bias(t)) bias.start(of_bias(t, p));
    edge.start(t, p);
  }
  FUSEDOPS_DEVICE Vector<T> x_of(int k) const { return x[k]; }
  FUSEDOPS_DEVICE Vector<T> residual_of(int k) const { return residual[kSums ? k : 0]; }
  FUSEDOPS_DEVICE Vector<T> next_bias(int k, const Tensors<T>& t, const P& p) {
    return bias.next(k, of_bias(t, p));
  }

 private:
  FUSEDOPS_DEVICE static auto of_bias(const Tensors<T>& t, const P& p) {
    return [&](Vector<T>& to, int k) {
      if (!p.skips(k)) to = p.of_columns(t.bias, k);
    };
  }
  FUSEDOPS_DEVICE static void read(Vector<T> (&to)[S::kVectors], const T* from, const P& p) {
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      if (!p.skips(k)) to[k] = load(p.of_row(from, k));
    }
  }
};

// The vectors of gamma and beta over one of a row.
template <class T>
struct Gain {
  Vector<T> gamma, beta;
};

// Those of an element outside the row's vectors.
template <class F, RowLayout kLayout>
struct EdgeGain {
  using T = typename F::T;
  T gamma, beta;

  FUSEDOPS_DEVICE void load(const Tensors<T>& t, const RowSlice<T, kLayout>& p) {
    if (!p.has_edge()) return;
    gamma = t.gamma[p.edge_column()];
    if constexpr (F::kCentered) beta = t.beta[p.edge_column()];
  }
};

// gamma and beta of the thread's columns, as loaded.
template <class F, class S, RowLayout kLayout>
struct Gains {
  using T = typename F::T;
  using P = RowSlice<T, kLayout>;
  Prefetched<S, Gain<T>> prefetched;

  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const P& p) { prefetched.start(of_gains(t, p)); }
  FUSEDOPS_DEVICE Gain<T> next(int k, const Tensors<T>& t, const P& p) {
    return prefetched.next(k, of_gains(t, p));
  }
  FUSEDOPS_DEVICE EdgeGain<F, kLayout> edge_of(const Tensors<T>& t, const P& p) const {
    EdgeGain<F, kLayout> gain;
    gain.load(t, p);
    return gain;
  }

 private:
  FUSEDOPS_DEVICE static auto of_gains(const Tensors<T>& t, const P& p) {
    return [&](Gain<T>& to, int k) {
      if (p.skips(k)) return;
      to.gamma = p.of_columns(t.gamma, k);
      if constexpr (F::kCentered) to.beta = p.of_columns(t.beta, k);
    };
  }
};

// V elements between the passes over a row. They are held in the arithmetic's type,
template <class T, bool kPacked>
struct RegisterVector {
  Accumulator<T> lane[kLanes<T>];
  FUSEDOPS_DEVICE void put(const Vector<T>& x) { widen(lane, x); }
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
// or packed, in half the registers; then each pass widens them again.
template <class T>
struct RegisterVector<T, true> {
  unsigned word[kVectorBytes / sizeof(unsigned)];
  FUSEDOPS_DEVICE void put(const Vector<T>& x) { memcpy(word, &x, sizeof(x)); }
  FUSEDOPS_DEVICE void get(Accumulator<T> (&x)[kLanes<T>]) const {
    Vector<T> in;
    memcpy(&in, word, sizeof(in));
    widen(x, in);
  }
  // Stops the compiler from keeping the widened values in registers, or from widening early.
  FUSEDOPS_DEVICE void end_pass(float result) {
    const unsigned zero = math::unknown_zero(result);
#pragma unroll
    for (unsigned& w : word) w ^= zero;
  }
};

template <class T>
FUSEDOPS_DEVICE void add(Accumulator<T> (&x)[kLanes<T>], const Vector<T>& other) {
  Accumulator<T> y[kLanes<T>];
  widen(y, other);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) x[i] += y[i];
}

template <class F, class S>
struct RegisterRow {
  using T = typename F::T;
  RegisterVector<T, S::kPacked> vector[S::kVectors];
  Accumulator<T> edge;  // an element outside the whole vectors

  // Subtracts `mean` from unpacked elements. Returns what is left to subtract.
  FUSEDOPS_DEVICE float subtract(float mean) {
    if constexpr (!S::kPacked) {
#pragma unroll
      for (auto& one : vector) {
#pragma unroll
        for (float& x : one.lane) x -= mean;
      }
      edge -= mean;
      mean = 0;
    }
    return mean;
  }
  // Ends a pass over the row that gave `result`.
  FUSEDOPS_DEVICE void end_pass(Accumulator<T> result) {
#pragma unroll
    for (auto& one : vector) one.end_pass(result);
  }
};

// Adds up the loaded inputs. Stores the sum in `sum` unless that is null.
template <class F, class S, RowLayout kLayout, class In>
FUSEDOPS_DEVICE void take(RegisterRow<F, S>& part, In& in, const Tensors<typename F::T>& t,
                          const RowSlice<typename F::T, kLayout>& p, typename F::T* sum) {
  using T = typename F::T;
  using A = Accumulator<T>;
  constexpr int V = kLanes<T>;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    A x[V];
    if constexpr (S::kPacked) {
      part.vector[k].put(in.x_of(k));
    } else {
      widen(x, in.x_of(k));
      if (F::adds_bias(t)) add(x, in.next_bias(k, t, p));
      if (F::adds_residual(t)) add(x, in.residual_of(k));
      part.vector[k].put(x);
    }
    if (F::kAdds != Adds::nothing && sum && p.has(k)) {
      store(p.template own_of_row<S>(sum, k), narrow<T>(x));
    }
  }
  part.edge = 0;
  if (p.has_edge()) {
    part.edge = widen(in.edge.x);
    if (F::adds_bias(t)) part.edge += widen(in.edge.bias);
    if (F::adds_residual(t)) part.edge += widen(in.edge.residual);
    if (F::kAdds != Adds::nothing && sum) sum[p.row + p.edge_column()] = narrow<T>(part.edge);
  }
}

// The sum over the thread's elements of `of(element)`.
template <class F, class S, RowLayout kLayout, class Of>
FUSEDOPS_DEVICE Accumulator<typename F::T> sum_of(const RegisterRow<F, S>& part,
                                                  const RowSlice<typename F::T, kLayout>& p,
                                                  Of of) {
  using A = Accumulator<typename F::T>;
  constexpr int V = kLanes<typename F::T>;
  constexpr int kFirst = S::kClusters ? 2 : 0;  // fewer additions, but more registers
  A sum = p.has_edge() ? of(part.edge) : 0;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    A x[V];
    part.vector[k].get(x);
    A even = kFirst > 0 ? of(x[0]) : 0, odd = kFirst > 0 ? of(x[1]) : 0;
#pragma unroll
    for (int i = kFirst; i < V; i += 2) {
      even += of(x[i]);
      odd += of(x[i + 1]);
    }
    sum += p.has(k) ? even + odd : 0;
  }
  return sum;
}

// Elements of a row, and those of gamma and beta, to elements of the norm.
template <class F, class A, int V>
FUSEDOPS_DEVICE void normalise(A (&x)[V], const Scale<A>& by, const Gain<typename F::T>& gain) {
  A gamma[V], beta[V];
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
}

// The gains must have been started.
template <class F, class S, RowLayout kLayout, class A, class From>
FUSEDOPS_DEVICE void write(const RegisterRow<F, S>& part, const Scale<A>& by,
                           const Tensors<typename F::T>& t, From& gains,
                           const RowSlice<typename F::T, kLayout>& p) {
  using T = typename F::T;
  constexpr int V = kLanes<T>;
  [[maybe_unused]] const A near_zero = -by.mean * by.scale;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if (p.skips(k)) continue;
    A x[V];
    part.vector[k].get(x);
    if constexpr (F::kCentered && S::kClusters && !S::kPacked) {
#pragma unroll
      for (A& one : x) one = fma(one, by.scale, near_zero);
      normalise<F>(x, {0, 1}, gains.next(k, t, p));
    } else {
      normalise<F>(x, by, gains.next(k, t, p));
    }
    if (p.has(k)) store(p.template own_of_row<S>(t.y, k), narrow<T>(x));
  }
  if (p.has_edge()) {
    const auto gain = gains.edge_of(t, p);
    A x = (part.edge - by.mean) * by.scale * widen(gain.gamma);
    if constexpr (F::kCentered) x += widen(gain.beta);
    t.y[p.row + p.edge_column()] = narrow<T>(x);
  }
}

}  // namespace fusedops::kernels::norm_detail
