// Blocks that work together: clusters of blocks, and counting the blocks of a grid as they end.
#pragma once

#include <cstdint>

#include "platform/math.h"

namespace fusedops::cluster {

FUSEDOPS_DEVICE unsigned size() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
#else
  return 1;
#endif
}

FUSEDOPS_DEVICE unsigned rank() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned block;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
#else
  return 0;
#endif
}

// The halves of sync(): a thread does what need not wait for the others between them.
FUSEDOPS_DEVICE void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
FUSEDOPS_DEVICE void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
// __syncthreads() for all blocks of the cluster.
FUSEDOPS_DEVICE void sync() {
  arrive();
  wait();
}

// What a block of the cluster has where `mine` is in this one's shared memory.
FUSEDOPS_DEVICE float read(const float& mine, [[maybe_unused]] unsigned block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
  unsigned theirs;
  float value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(address), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(theirs) : "memory");
  return value;
#else
  return mine;
#endif
}

}  // namespace fusedops::cluster

namespace fusedops {

// Adds 1 and gives what there was. Who counts later sees what this thread knew to be written.
FUSEDOPS_DEVICE std::int32_t count_up(std::int32_t* counter) {
#if defined(__HIP_PLATFORM_AMD__)
  return __hip_atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
  __threadfence();
  const std::int32_t before = atomicAdd(counter, 1);
  __threadfence();
  return before;
#else
  std::int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
#endif
}

}  // namespace fusedops
