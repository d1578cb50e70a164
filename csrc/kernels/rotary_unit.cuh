// What a thread of rotary does of one head: a unit, V pairs of elements in two pieces of V
// neighbours.
#pragma once

#include "kernels/granule.cuh"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace rotary_detail {

// V neighbouring elements, as bytes: were they elements, the compiler would take each apart as it
// comes, and so wait for one load before the next.
template <class T, int V>
using Piece = Granule<V* static_cast<int>(sizeof(T))>;

template <class T, int V>
FUSEDOPS_DEVICE void widen_piece(Accumulator<T> (&out)[V], const Piece<T, V>& in) {
  if constexpr (V == kLanes<T>) {
    Vector<T> vector;
    memcpy(&vector, &in, sizeof(in));
    widen(out, vector);
  } else {
    T lanes[V];
    memcpy(lanes, &in, sizeof(in));
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = widen(lanes[i]);
  }
}

template <class T, int V>
FUSEDOPS_DEVICE Piece<T, V> narrow_piece(const Accumulator<T> (&in)[V]) {
  Piece<T, V> out;
  if constexpr (V == kLanes<T>) {
    const Vector<T> vector = narrow<T>(in);
    memcpy(&out, &vector, sizeof(out));
  } else {
    T lanes[V];
#pragma unroll
    for (int i = 0; i < V; ++i) lanes[i] = narrow<T>(in[i]);
    memcpy(&out, lanes, sizeof(out));
  }
  return out;
}

// As much of the table as one access of shared memory brings.
template <class A, int N>
struct alignas(N * sizeof(Turn<A>)) Turns {
  Turn<A> turn[N];
};

// Which pair of a head is pair j of a unit. Interleaved pairs lie within a piece, so the second
// half of them belongs to the second piece.
template <int V, bool kInterleaved>
FUSEDOPS_DEVICE unsigned pair_of(unsigned unit, unsigned j, unsigned rotary_dim) {
  if constexpr (kInterleaved) {
    constexpr unsigned kHalf = V / 2;
    return unit * kHalf + (j < kHalf ? j : rotary_dim / 4 + j - kHalf);
  } else {
    return unit * V + j;
  }
}

template <class A>
FUSEDOPS_DEVICE void turn(A& a, A& b, const Turn<A>& by) {
  const A old = a;
  a = fma(old, by.cos, -(b * by.sin));
  b = fma(b, by.cos, old * by.sin);
}

template <class T, int V, bool kInterleaved, int N>
FUSEDOPS_DEVICE void turn_unit(Piece<T, V>& first, Piece<T, V>& second,
                               const Turns<Accumulator<T>, N>* table, unsigned row) {
  Accumulator<T> a[V], b[V];
  widen_piece<T, V>(a, first);
  widen_piece<T, V>(b, second);
#pragma unroll
  for (int c = 0; c < V / N; ++c) {
    const Turns<Accumulator<T>, N> some = table[c * row];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int j = c * N + i;
      if constexpr (!kInterleaved) {
        turn(a[j], b[j], some.turn[i]);
      } else if (j < V / 2) {
        turn(a[2 * j], a[2 * j + 1], some.turn[i]);
      } else {
        turn(b[2 * j - V], b[2 * j - V + 1], some.turn[i]);
      }
    }
  }
  first = narrow_piece<T, V>(a);
  second = narrow_piece<T, V>(b);
}

}  // namespace rotary_detail
}  // namespace fusedops::kernels
