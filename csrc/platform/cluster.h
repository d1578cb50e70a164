// Blocks that work together: clusters of blocks that run at the same time and read each other's
// shared memory, and a counter for the blocks of a grid. Clusters exist on NVIDIA's data-centre
// GPUs from compute capability 9.0 on; elsewhere each block is a cluster of its own.
#pragma once

#include <cstdint>

#include "platform/math.h"

namespace fusedops::cluster {

// Whether device code can have clusters.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kSupported = true;
#else
constexpr bool kSupported = false;
#endif
constexpr int kAlwaysAllowed = 8;  // blocks of a cluster
constexpr int kMostBlocks = 16;    // if gpu::allow_large_clusters() was called

FUSEDOPS_DEVICE unsigned size() {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return model::cluster_size();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
#else
  return 1;
#endif
}

FUSEDOPS_DEVICE unsigned rank() {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return model::cluster_rank();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned block;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
#else
  return 0;
#endif
}

// The number of the cluster in a grid along x.
FUSEDOPS_DEVICE unsigned number() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(FUSEDOPS_MODEL)
  unsigned cluster;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
  return cluster;
#else
  return blockIdx.x / size();
#endif
}

// The two halves of sync(). Between them a thread can do work that need not wait for the others.
FUSEDOPS_DEVICE void arrive() {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  model::cluster_arrive();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// arrive() that orders no accesses to memory but those of open(): the other one waits for memory.
FUSEDOPS_DEVICE void arrive_relaxed() {
#if defined(FUSEDOPS_MODEL)
  arrive();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
FUSEDOPS_DEVICE void wait() {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  model::cluster_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
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

// The value that `block` of the cluster has at the place of `mine`.
FUSEDOPS_DEVICE float read(const float& mine, [[maybe_unused]] unsigned block) {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return model::cluster_read(&mine, block);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
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

// Where a block gets values that the blocks of its cluster send. It lies at the same place of each
// block's shared memory.
struct Mailbox {
  alignas(8) std::uint64_t state;
};

// Lets `values` values come. One thread calls it, and then all threads call arrive_relaxed(); the
// blocks may send after the cluster's wait().
FUSEDOPS_DEVICE void open([[maybe_unused]] Mailbox& box, [[maybe_unused]] unsigned values) {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  model::mail_open(&box, values);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&box));
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
      "fence.mbarrier_init.release.cluster;\n\t"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
      "r"(values * static_cast<unsigned>(sizeof(float)))
      : "memory");
#endif
}

// Lets as many values come once more. One thread calls it that has received the last ones; the
// blocks may send once they have got word of this block after that.
FUSEDOPS_DEVICE void reopen([[maybe_unused]] Mailbox& box, [[maybe_unused]] unsigned values) {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  model::mail_reopen(&box, values);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&box));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
               "r"(values * static_cast<unsigned>(sizeof(float)))
               : "memory");
#endif
}

// Sends a float, or some at once as a float2 or a float4, to the place of `mine`, and word of it to
// the place of `box`, in a block of the cluster. The sender may end before it arrives. In a launch
// without clusters this is an illegal instruction.
template <class Floats>
FUSEDOPS_DEVICE void send([[maybe_unused]] const Floats& value, [[maybe_unused]] Floats& mine,
                          [[maybe_unused]] Mailbox& box, [[maybe_unused]] unsigned block) {
  static_assert(sizeof(Floats) == 4 || sizeof(Floats) == 8 || sizeof(Floats) == 16);
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto* const from = reinterpret_cast<const float*>(&value);
  auto* const to = reinterpret_cast<float*>(&mine);
  for (unsigned i = 0; i < sizeof(Floats) / 4; ++i) model::mail_send(from[i], to + i, &box, block);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto here = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
  const auto box_here = static_cast<unsigned>(__cvta_generic_to_shared(&box));
  unsigned there, box_there, bits[sizeof(Floats) / 4];
  memcpy(bits, &value, sizeof(bits));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(box_there) : "r"(box_here), "r"(block));
  if constexpr (sizeof(Floats) == 4) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
        "r"(bits[0]), "r"(box_there)
        : "memory");
  } else if constexpr (sizeof(Floats) == 8) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
            there),
        "r"(bits[0]), "r"(bits[1]), "r"(box_there)
        : "memory");
  } else {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(there),
        "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3]), "r"(box_there)
        : "memory");
  }
#endif
}

// Waits until all values have come, those of the opening in round 0. Each thread that reads one
// calls it, and a block must not end before.
FUSEDOPS_DEVICE void receive([[maybe_unused]] Mailbox& box, [[maybe_unused]] unsigned round) {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  model::mail_receive(&box, round);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&box));
  unsigned done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(at), "r"(round % 2)
        : "memory");
  } while (!done);
#endif
}

// Adds 1 to a counter of the grid and returns the value before. It orders no other memory.
FUSEDOPS_DEVICE unsigned draw(std::int32_t* counter) {
#if defined(FUSEDOPS_MODEL)
  return static_cast<unsigned>(model::count_up(counter));
#else
  return static_cast<unsigned>(atomicAdd(counter, 1));
#endif
}

}  // namespace fusedops::cluster

namespace fusedops {

// Adds 1 and returns the value before. A thread that counts later sees everything that this thread
// has written or seen.
FUSEDOPS_DEVICE std::int32_t count_up(std::int32_t* counter) {
#if defined(FUSEDOPS_MODEL)
  return model::count_up(counter);
#elif defined(__HIP_PLATFORM_AMD__)
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
