// Elements that stay packed, as in memory, until they are used.
#pragma once

#include "kernels/vector.cuh"
#include "platform/fetch.h"

namespace fusedops {

// A vector as words, for code that treats all of its lanes alike. The compiler would hold each
// 16-bit lane in a register of its own.
struct alignas(kVectorBytes) Packed {
  unsigned word[kVectorBytes / sizeof(unsigned)];
};

// `data` must start on 16 bytes.
template <class T>
FUSEDOPS_DEVICE const Packed* as_packed(const T* data) {
  return reinterpret_cast<const Packed*>(data);
}
template <class T>
FUSEDOPS_DEVICE Packed* as_packed(T* data) {
  return reinterpret_cast<Packed*>(data);
}

template <class T>
FUSEDOPS_DEVICE Packed pack(const Vector<T>& vector) {
  Packed words;
  memcpy(&words, &vector, sizeof(words));
  return words;
}

FUSEDOPS_DEVICE Packed as_packed(const fetch::Words<4>& fetched) {
  Packed words;
  memcpy(&words, &fetched, sizeof(words));
  return words;
}

// For data that is read once, so that it does not displace other data from L1.
FUSEDOPS_DEVICE Packed read_once(const Packed* data) {
  return as_packed(fetch::once<4>(reinterpret_cast<const char*>(data)));
}

template <fetch::Leaves kWhen>
FUSEDOPS_DEVICE Packed load_leaving(const Packed* data) {
  return as_packed(fetch::load<kWhen>(reinterpret_cast<const char*>(data)));
}
// Stores what is not read again.
FUSEDOPS_DEVICE void write_once(Packed* data, const Packed& words) {
  fetch::Words<4> stored;
  memcpy(&stored, &words, sizeof(stored));
  fetch::store<fetch::Leaves::first>(reinterpret_cast<char*>(data), stored);
}

// Makes the compiler compute values from the words again instead of keeping them.
FUSEDOPS_DEVICE void forget(Packed& words) {
#pragma unroll
  for (unsigned& word : words.word) fetch::make_opaque(word);
}

template <class T>
FUSEDOPS_DEVICE Packed pack_copies(T value) {
  T lanes[kLanes<T>];
#pragma unroll
  for (T& lane : lanes) lane = value;
  Packed words;
  memcpy(&words, lanes, sizeof(words));
  return words;
}

template <class T>
FUSEDOPS_DEVICE Vector<T> unpack(const Packed& words) {
  Vector<T> vector;
  memcpy(&vector, &words, sizeof(words));
  return vector;
}

template <class T>
FUSEDOPS_DEVICE void widen(Accumulator<T> (&out)[kLanes<T>], const Packed& in) {
  widen(out, unpack<T>(in));
}

// The larger one of each two lanes; of a NaN and a number the number.
template <class T>
FUSEDOPS_DEVICE Packed larger(const Packed& a, const Packed& b) {
  Packed out;
  if constexpr (sizeof(T) == 2 && math::kHasPairs) {
#pragma unroll
    for (unsigned i = 0; i < kVectorBytes / sizeof(unsigned); ++i) {
      out.word[i] = math::larger_pair<std::is_same_v<T, half>>(a.word[i], b.word[i]);
    }
  } else {
    Accumulator<T> x[kLanes<T>], y[kLanes<T>];
    widen<T>(x, a);
    widen<T>(y, b);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) x[i] = fmax(x[i], y[i]);
    out = pack(narrow<T>(x));
  }
  return out;
}

// `kCount` neighbours that go with a vector. Their type M may be narrower or wider than the
// vector's.
template <class M, int kCount>
struct Neighbours {
  static constexpr int kBytes = kCount * sizeof(M);
  static constexpr int kAlignment = kBytes < kVectorBytes ? kBytes : kVectorBytes;
  using Unit = std::conditional_t<kBytes % sizeof(unsigned) == 0, unsigned, unsigned short>;
  struct Lanes {
    M each[kCount];
  };
  struct alignas(kAlignment) Units {
    Unit each[kBytes / sizeof(Unit)];
  };
  Units units;

  FUSEDOPS_DEVICE Lanes lanes() const {
    Lanes lanes;
    memcpy(&lanes, &units, kBytes);
    return lanes;
  }

  // `data` must be aligned for all of them together.
  FUSEDOPS_DEVICE static Neighbours read(const M* __restrict__ data) {
    return {*reinterpret_cast<const Units*>(data)};
  }
};

}  // namespace fusedops
