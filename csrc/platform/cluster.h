// Blocks that run at the same time and read each other's shared memory. NVIDIA's data-centre GPUs
// from compute capability 9.0 on; elsewhere a block is a cluster of its own.
#pragma once

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
