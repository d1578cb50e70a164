// The kernel of rotary: a thread rotates the same pairs in several heads of one position.
//
// Its part of a head is a unit: V pairs of elements, in two pieces of V neighbours.
#pragma once

#include "kernels/rotary.h"
#include "kernels/rotation.cuh"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/fetch.h"
#include "platform/overlap.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace rotary_detail {

// V neighbouring elements as bytes. As elements, the compiler would unpack each one when it
// arrives, and so wait for one load before it starts the next.
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

// A part of the table that one access to shared memory reads.
template <class A, int N>
struct alignas(N * sizeof(Rotation<A>)) Rotations {
  Rotation<A> rotation[N];
};

// The number in the head of a unit's pair j. Interleaved pairs lie within one piece, so the second
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
FUSEDOPS_DEVICE void rotate(A& a, A& b, const Rotation<A>& by) {
  const A old = a;
  a = fma(old, by.cos, -(b * by.sin));
  b = fma(b, by.cos, old * by.sin);
}

template <class T, int V, bool kInterleaved, int N>
FUSEDOPS_DEVICE void rotate_unit(Piece<T, V>& first, Piece<T, V>& second,
                                 const Rotations<Accumulator<T>, N>* table, unsigned row) {
  Accumulator<T> a[V], b[V];
  widen_piece<T, V>(a, first);
  widen_piece<T, V>(b, second);
#pragma unroll
  for (int c = 0; c < V / N; ++c) {
    const Rotations<Accumulator<T>, N> some = table[c * row];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int j = c * N + i;
      if constexpr (!kInterleaved) {
        rotate(a[j], b[j], some.rotation[i]);
      } else if (j < V / 2) {
        rotate(a[2 * j], a[2 * j + 1], some.rotation[i]);
      } else {
        rotate(b[2 * j - V], b[2 * j - V + 1], some.rotation[i]);
      }
    }
  }
  first = narrow_piece<T, V>(a);
  second = narrow_piece<T, V>(b);
}

}  // namespace rotary_detail
namespace rotary_detail {

constexpr int kMostThreads = 512;
constexpr int kMostSlots = 64;  // units times positions of a block: the size of its table

template <class Void>
struct Heads {
  Void* data;  // where head 0 would lie
  HeadStrides strides;
};

// The layout of a launch. If elements past rotary_dim are copied, the last units of a head copy
// them.
struct RotaryLayout {
  Heads<const void> from[2];  // q, then k
  Heads<void> to[2];
  unsigned heads_q;
  unsigned heads;      // heads of q and k
  unsigned positions;  // tokens of all sequences
  unsigned rotated;    // units of a head that rotate
  unsigned units;      // units of a head, with those that copy
  int step;            // elements from one rotating unit to the next
  int partner;         // elements from a unit's first piece to its second
  int head_dim;
  int rotary_dim;
  double log2_step;
  std::int64_t direction;  // 1 or -1
  Positions at;
};

FUSEDOPS_DEVICE std::int64_t position_of(const Positions& at, unsigned sequence, unsigned token) {
  std::int64_t position = at.offset + at.counts * token;
  if (at.data) {
    const std::int64_t i = sequence * at.batch + token * at.token;
    position += at.wide ? static_cast<const std::int64_t*>(at.data)[i]
                        : static_cast<const std::int32_t*>(at.data)[i];
  }
  return position;
}

// Where the heads of a token lie. The heads of q and of k are numbered together.
template <class E>
struct TokenHeads {
  E* start[2];
  std::int64_t step[2];
  unsigned heads_q;

  template <class Void>
  FUSEDOPS_DEVICE TokenHeads(const Heads<Void> (&sides)[2], unsigned heads_q, unsigned sequence,
                             unsigned token)
      : heads_q(heads_q) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const HeadStrides& strides = sides[i].strides;
      step[i] = strides.head;
      start[i] = static_cast<E*>(sides[i].data) + sequence * strides.batch + token * strides.token;
    }
  }

  FUSEDOPS_DEVICE E* head(unsigned number) const {
    const bool of_k = number >= heads_q;
    return (of_k ? start[1] : start[0]) + number * (of_k ? step[1] : step[0]);
  }
};

// Whether the block is one of the first, which start at once: they may prefetch their heads to L2
// before the previous kernels end.
FUSEDOPS_DEVICE bool is_among_first() {
  constexpr unsigned kFirst = 1 << 17;  // threads
  return blockIdx.x * (blockDim.x * blockDim.y * blockDim.z) < kFirst;
}

// Threads: x along the units of a head, y along the heads, z along positions. A thread has kHeads
// heads of one unit and one position in flight. The block computes sine and cosine of its pairs and
// positions once for all heads: the angle of one position before the previous kernels end, and that
// of this position while the heads arrive. Half the threads of a full multiprocessor suffice: more
// bytes in flight are not faster.
template <class T, int V, bool kInterleaved, int kHeads>
__global__ void __launch_bounds__(kMostThreads, FUSEDOPS_FULL_SM(2 * kMostThreads))
    rotary_kernel(const RotaryLayout l, const Divisor tokens) {
  using A = Accumulator<T>;
  using P = Piece<T, V>;
  constexpr int kTogether = V == 1 ? 1 : kVectorBytes / static_cast<int>(sizeof(Rotation<A>));
  __shared__ Rotations<A, kTogether> table[kMostSlots * V / kTogether];

  const unsigned unit = blockIdx.y * blockDim.x + threadIdx.x;
  const unsigned position = blockIdx.x * blockDim.z + threadIdx.z;
  const unsigned sequence = tokens.quotient(position), token = position - sequence * tokens.by;
  const unsigned first_head = blockIdx.z * (blockDim.y * kHeads) + threadIdx.y;
  const bool here = position < l.positions && unit < l.units;
  const bool rotates = here && unit < l.rotated;
  const int first_at = rotates ? unit * l.step : l.rotary_dim + (unit - l.rotated) * V;
  const int second_at = first_at + (rotates ? l.partner : (l.units - l.rotated) * V);
  const bool two = second_at < l.head_dim;
  const unsigned heads = here ? l.heads : 0;

  // Neighbouring units lie side by side with 16 bytes each, so that banks do not conflict.
  auto* const mine = table + threadIdx.z * (V / kTogether) * blockDim.x + threadIdx.x;
  const auto each_pair = [&](const auto& body) {
#pragma unroll 1
    for (unsigned j = threadIdx.y; rotates && j < V; j += blockDim.y) {
      body(j, mine[j / kTogether * blockDim.x].rotation[j % kTogether]);
    }
  };
  each_pair([&](unsigned j, Rotation<A>& rotation) {
    const Angle angle =
        angle_per_position(l.log2_step, pair_of<V, kInterleaved>(unit, j, l.rotary_dim));
    memcpy(&rotation, &angle, sizeof(angle));
  });

  const TokenHeads<const T> from(l.from, l.heads_q, sequence, token);
  if (sizeof(P) == kVectorBytes && is_among_first()) {
#pragma unroll 1
    for (int k = 0; k < kHeads; ++k) {
      const unsigned head = first_head + k * blockDim.y;
      if (head >= heads) break;
      const T* const data = from.head(head);
      fetch::into_l2(reinterpret_cast<const char*>(data + first_at));
      if (two) fetch::into_l2(reinterpret_cast<const char*>(data + second_at));
    }
  }
  overlap::wait_in_turn();

  P first[kHeads], second[kHeads];
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    const unsigned head = first_head + k * blockDim.y;
    if (head < heads) {
      const T* const data = from.head(head);
      first[k] = *reinterpret_cast<const P*>(data + first_at);
      if (two) second[k] = *reinterpret_cast<const P*>(data + second_at);
    }
  }
  each_pair([&](unsigned, Rotation<A>& rotation) {
    Angle angle;
    memcpy(&angle, &rotation, sizeof(angle));
    rotation = rotation_by<A>(l.direction * position_of(l.at, sequence, token) * angle);
  });
  __syncthreads();
  const TokenHeads<T> to(l.to, l.heads_q, sequence, token);
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    const unsigned head = first_head + k * blockDim.y;
    if (head < heads) {
      if (rotates) rotate_unit<T, V, kInterleaved>(first[k], second[k], mine, blockDim.x);
      T* const data = to.head(head);
      *reinterpret_cast<P*>(data + first_at) = first[k];
      if (two) *reinterpret_cast<P*>(data + second_at) = second[k];
    }
  }
}

}  // namespace rotary_detail
}  // namespace fusedops::kernels
