// Products of small matrices by a warp together: NVIDIA GPUs from compute capability 8.0 on.
//
// A matrix is spread over the warp's 32 threads. With g = thread / 4 and t = thread % 4:
//   a [16, 16]: words (g, 2t..2t+1), (g+8, 2t..2t+1), (g, 2t+8..2t+9), (g+8, 2t+8..2t+9)
//   b [16, 8]:  words (2t..2t+1, g), (2t+8..2t+9, g)
//   c [16, 8]:  (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
// where a word holds two 16-bit elements, the first in its lower half.
#pragma once

#include <type_traits>

#include "platform/shared.h"

namespace fusedops::tensor_core {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool kSupported = true;
#else
constexpr bool kSupported = false;
#endif

// c += a b, for half or bfloat16 elements.
template <class T>
FUSEDOPS_DEVICE void multiply_add([[maybe_unused]] float (&c)[4],
                                  [[maybe_unused]] const unsigned (&a)[4],
                                  [[maybe_unused]] const unsigned (&b)[2]) {
#if defined(FUSEDOPS_MODEL)
  model::multiply_add(c, a, b, [](unsigned word, float (&out)[2]) {
    T pair[2];
    memcpy(pair, &word, sizeof(word));
    for (int i = 0; i < 2; ++i) {
      if constexpr (std::is_same_v<T, gpu::half>) {
        out[i] = __half2float(pair[i]);
      } else {
        out[i] = __bfloat162float(pair[i]);
      }
    }
  });
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, gpu::half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// Loads four [8, 8] matrices from shared memory. Thread 8i + j of the warp passes row j of matrix
// i, 16 bytes. Each thread gets (g, 2t..2t+1) of each matrix, or of its transpose.
template <bool kTransposed = false>
FUSEDOPS_DEVICE void load_matrices([[maybe_unused]] unsigned (&words)[4],
                                   [[maybe_unused]] shared::Address row) {
#if defined(FUSEDOPS_MODEL) && !defined(__HIP_PLATFORM_AMD__)
  model::load_matrices(words, row, kTransposed);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  }
#endif
}

// Transposes an [8, 8] matrix of 16-bit elements. Each thread passes and gets (g, 2t..2t+1).
FUSEDOPS_DEVICE unsigned transpose(unsigned word) {
#if defined(FUSEDOPS_MODEL)
  return model::transpose(word);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(word));
  return out;
#else
  return word;
#endif
}

}  // namespace fusedops::tensor_core
