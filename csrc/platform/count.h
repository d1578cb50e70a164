// Counting the blocks of a grid as they come to an end.
#pragma once

#include <cstdint>

#include "platform/math.h"

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
