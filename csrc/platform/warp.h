// Exchange of values between the threads of a warp.
#pragma once

#include <cstring>
#include <type_traits>

#include "platform/math.h"

namespace fusedops::warp {

// So many neighbouring threads can exchange values on every GPU: a warp of 32, or half a wavefront
// of 64.
constexpr int kWidth = 32;

namespace detail {

template <class T, class Exchange>
FUSEDOPS_DEVICE T by_words(const T& value, Exchange exchange) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(unsigned) == 0);
  constexpr int kWords = sizeof(T) / sizeof(unsigned);
  unsigned words[kWords];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = exchange(words[i]);
  T other;
  memcpy(&other, words, sizeof(T));
  return other;
}

}  // namespace detail

// The value of the thread whose lane differs from this one's in the bits of `mask`. `mask` is less
// than kWidth. All threads of the warp must call it.
template <class T>
FUSEDOPS_DEVICE T shuffle_xor(const T& value, int mask) {
  return detail::by_words(value, [=](unsigned word) {
#if defined(FUSEDOPS_MODEL)
    return model::shuffle_xor(word, mask);
#elif defined(__HIP_PLATFORM_AMD__)
    return __shfl_xor(word, mask);
#else
    return __shfl_xor_sync(0xffffffffu, word, mask);
#endif
  });
}

// The value of the thread of lane `from`. All threads of the warp must call it.
template <class T>
FUSEDOPS_DEVICE T shuffle(const T& value, int from) {
  return detail::by_words(value, [=](unsigned word) {
#if defined(FUSEDOPS_MODEL)
    return model::shuffle(word, from);
#elif defined(__HIP_PLATFORM_AMD__)
    return __shfl(word, from, kWidth);
#else
    return __shfl_sync(0xffffffffu, word, from);
#endif
  });
}

// The number of the thread's warp in its block. The compiler learns that it is the same for the
// whole warp. Blocks must lie along x.
FUSEDOPS_DEVICE int index() {
  const int of_thread = static_cast<int>(threadIdx.x) / kWidth;
#if defined(__HIP_PLATFORM_AMD__)
  return of_thread;  // a wavefront of 64 contains two
#else
  return shuffle(of_thread, 0);
#endif
}

// The value of the previous thread of the warp; the first thread keeps its own. All threads of the
// warp must call it.
template <class T>
FUSEDOPS_DEVICE T shuffle_up(const T& value) {
  return detail::by_words(value, [](unsigned word) {
#if defined(FUSEDOPS_MODEL)
    return model::shuffle_up(word, kWidth);
#elif defined(__HIP_PLATFORM_AMD__)
    return __shfl_up(word, 1, kWidth);
#else
    return __shfl_up_sync(0xffffffffu, word, 1);
#endif
  });
}

// Makes what the threads of the warp have written to shared memory visible to all of them.
FUSEDOPS_DEVICE void sync() {
#if defined(FUSEDOPS_MODEL)
  model::warp_barrier();
#elif defined(__HIP_PLATFORM_AMD__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

// Combines the values of `lanes` neighbouring threads, a power of two up to kWidth, and returns the
// result in each of them. All threads of the warp must call it. `combine` is commutative, so all of
// them get the same bits.
template <class T, class Combine>
FUSEDOPS_DEVICE T reduce(T value, int lanes, Combine combine) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    if (mask < lanes) value = combine(value, shuffle_xor(value, mask));
  }
  return value;
}

// reduce() of two or four values over the warp, with half as many exchanges: a step leaves each
// thread with half of the values.
template <class T, int kCount, class Combine>
FUSEDOPS_DEVICE void reduce_all(T (&values)[kCount], Combine combine) {
  static_assert(kCount == 2 || kCount == 4);
  const unsigned lane = threadIdx.x % kWidth;
#pragma unroll
  for (int halvings = 1; kCount >> halvings > 0; ++halvings) {
    const int left = kCount >> halvings, mask = kWidth >> halvings;
    const bool upper = (lane & mask) != 0;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const T low = values[i], high = values[i + left];
      values[i] = combine(upper ? high : low, shuffle_xor(upper ? low : high, mask));
    }
  }
  const T one = reduce(values[0], kWidth / kCount, combine);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = shuffle(one, i * (kWidth / kCount));
}

}  // namespace fusedops::warp
