// Loads and stores with cache hints, and prefetches.
#pragma once

#include <cstdint>

#include "platform/math.h"

namespace fusedops::fetch {

// 8 or 16 bytes.
template <int kWords>
struct alignas(kWords * 4) Words {
  unsigned word[kWords];
};

// For data that no other thread of the block reads: it is not kept in L1. Its neighbours are read
// too, so the whole line goes to L2. It is not a read-only load, because the compiler moves those
// before overlap::wait().
template <int kWords>
FUSEDOPS_DEVICE Words<kWords> once(const char* address) {
  Words<kWords> out;
#if defined(FUSEDOPS_MODEL)
  out = *reinterpret_cast<const Words<kWords>*>(address);
#else
  auto& word = out.word;
#if defined(__HIP_PLATFORM_AMD__)
  const auto* words = reinterpret_cast<const unsigned*>(address);
#pragma unroll
  for (int i = 0; i < kWords; ++i) word[i] = __builtin_nontemporal_load(words + i);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750  // has no such hints
  out = *reinterpret_cast<const Words<kWords>*>(address);
#else
  if constexpr (kWords == 4) {
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(address)
                 : "memory");
  } else {
    static_assert(kWords == 2);
    asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(address)
                 : "memory");
  }
#endif
#endif
  return out;
}

// Loads 16 bytes that the other blocks of the multiprocessor read too: they leave L1 last. It is
// not a read-only load, for the reason above.
FUSEDOPS_DEVICE Words<4> often(const char* address) {
#if defined(__HIP_PLATFORM_AMD__) || defined(FUSEDOPS_MODEL) || \
    (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750)
  return *reinterpret_cast<const Words<4>*>(address);
#else
  Words<4> out;
  asm volatile("ld.global.L1::evict_last.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
               : "l"(address));
  return out;
#endif
}

template <int kWords>
FUSEDOPS_DEVICE Words<kWords> plain(const char* address) {
  return *reinterpret_cast<const Words<kWords>*>(address);
}

// When a line leaves L2: before the others, as it is not used again, or after them.
enum class Leaves { first, last };

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(FUSEDOPS_MODEL)
#define FUSEDOPS_CACHE_POLICIES 1

template <Leaves kWhen>
FUSEDOPS_DEVICE std::uint64_t policy() {
  std::uint64_t made;
  if constexpr (kWhen == Leaves::first) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(made));
  } else {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(made));
  }
  return made;
}
#endif

// Loads 16 bytes, or stores them, and says when their line leaves L2.
template <Leaves kWhen>
FUSEDOPS_DEVICE Words<4> load(const char* address) {
#if defined(FUSEDOPS_CACHE_POLICIES)
  Words<4> out;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
               : "l"(address), "l"(policy<kWhen>())
               : "memory");
  return out;
#else
  return plain<4>(address);
#endif
}

template <Leaves kWhen>
FUSEDOPS_DEVICE void store(char* address, const Words<4>& words) {
#if defined(FUSEDOPS_CACHE_POLICIES)
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(address),
               "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]), "r"(words.word[3]),
               "l"(policy<kWhen>())
               : "memory");
#else
  *reinterpret_cast<Words<4>*>(address) = words;
#endif
}

// Prefetches the line of the address to L2. Later writes of other threads still reach it there, so
// this is harmless before overlap::wait().
FUSEDOPS_DEVICE void into_l2([[maybe_unused]] const char* address) {
#if !defined(__HIP_PLATFORM_AMD__) && !defined(FUSEDOPS_MODEL)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// Prefetches so many bytes, asked for by one thread. Address and size are multiples of 16.
FUSEDOPS_DEVICE void into_l2([[maybe_unused]] const void* address,
                             [[maybe_unused]] unsigned bytes) {
#if defined(FUSEDOPS_MODEL)
  model::prefetch(address, bytes);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
#endif
}

// Hides the value from the compiler: it can neither trace the value to its origin nor reuse what it
// derived from it before.
template <class T>
FUSEDOPS_DEVICE void make_opaque(T& value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(FUSEDOPS_MODEL)
  asm volatile("" : "+r"(value));
#elif defined(__HIP_PLATFORM_AMD__)
  asm volatile("" : "+v"(value));
#else
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
}

}  // namespace fusedops::fetch
