// CUDA, HIP or the CPU model (docs/emulation.md) for device code, under one set of names: 16-bit
// types and their conversions, the warp's width, and a checked launch.
#pragma once

#include <cstdint>

#include "platform/status.h"

#if defined(FUSEDOPS_MODEL)
#include "platform/cpu/language.h"
#elif defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

namespace fusedops::gpu {

using half = __half;
#if defined(__HIP_PLATFORM_AMD__) && !defined(FUSEDOPS_MODEL)
using bfloat16 = __hip_bfloat16;
using bfloat162 = __hip_bfloat162;
#else
using bfloat16 = __nv_bfloat16;
using bfloat162 = __nv_bfloat162;
#endif
#if defined(__HIP_PLATFORM_AMD__)
constexpr int kWarpSize = 64;  // RDNA has warps of 32 too; tile widths are rounded to the wider
#else
constexpr int kWarpSize = 32;
#endif

// How many blocks of `threads` threads fill a multiprocessor, for __launch_bounds__: the compiler
// then limits the registers accordingly. HIP's second bound means something else, waves of a SIMD
// unit at least; with 1 its compiler aims for as many as the registers allow.
#if defined(__HIP_PLATFORM_AMD__)
#define FUSEDOPS_FULL_SM(threads) 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
#define FUSEDOPS_FULL_SM(threads) (1024 / (threads))
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ % 100 != 0 || __CUDA_ARCH__ >= 1200)
#define FUSEDOPS_FULL_SM(threads) (1536 / (threads))
#else
#define FUSEDOPS_FULL_SM(threads) (2048 / (threads))
#endif
// Bounds with at least `blocks` blocks of a multiprocessor, or as many as fill it: a larger number
// is an error on older GPUs of NVIDIA.
#if defined(__HIP_PLATFORM_AMD__)
#define FUSEDOPS_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define FUSEDOPS_LAUNCH_BOUNDS(threads, blocks) \
  __launch_bounds__(threads,                    \
                    ((blocks) < FUSEDOPS_FULL_SM(threads) ? (blocks) : FUSEDOPS_FULL_SM(threads)))
#endif

// Ends the kernel with an error.
__device__ __forceinline__ void trap() {
#if defined(FUSEDOPS_MODEL)
  model::trap();
#elif defined(__HIP_PLATFORM_AMD__)
  __builtin_trap();
#else
  __trap();
#endif
}

// Stores 16 bytes to aligned global memory with one instruction. CUDA's compiler splits an
// assignment if it cannot prove the alignment.
__device__ __forceinline__ void store_16(void* data, const uint4& bits) {
#if defined(__HIP_PLATFORM_AMD__) || defined(FUSEDOPS_MODEL)
  *static_cast<uint4*>(data) = bits;
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(data), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
#endif
}

constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;  // along x

// Launches a kernel on `stream`. Returns whether the launch itself was accepted.
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), dim3 grid, dim3 threads,
              [[maybe_unused]] Stream stream, Arguments... arguments) {
#if defined(FUSEDOPS_MODEL)
  return model::launch(kernel, model::Grid{grid, threads}, arguments...);
#endif
#if !defined(FUSEDOPS_MODEL)
  kernel<<<grid, threads, 0, static_cast<NativeStream>(stream)>>>(arguments...);
  return last_status();
#endif
}

template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), std::int64_t blocks, dim3 threads, Stream stream,
              Arguments... arguments) {
  if (blocks > kMostBlocks)
    return kInvalidValue;  // more than any memory: a block covers 4 KiB or more
  return launch(kernel, dim3(static_cast<unsigned>(blocks)), threads, stream, arguments...);
}

}  // namespace fusedops::gpu
