// Addresses in shared memory, and asynchronous copies to it. Such a copy runs while the thread goes
// on: NVIDIA GPUs from compute capability 8.0 on. Elsewhere the thread waits for each.
#pragma once

#include "platform/math.h"

// Declares the dynamic shared memory of the block as an array of `type`.
#if defined(FUSEDOPS_MODEL)
#define FUSEDOPS_DYNAMIC_SHARED(type, name) \
  auto* const name = static_cast<type*>(::fusedops::model::dynamic_shared())
#else
#define FUSEDOPS_DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]
#endif

namespace fusedops::shared {

#if defined(__HIP_PLATFORM_AMD__)
using Address = char*;
FUSEDOPS_DEVICE Address address_of(void* data) { return static_cast<char*>(data); }
#else
using Address = unsigned;
FUSEDOPS_DEVICE Address address_of(const void* data) {
#if defined(FUSEDOPS_MODEL)
  return model::shared_address(data);
#else
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
#endif
}
#endif

// Loads 4 bytes.
FUSEDOPS_DEVICE unsigned load_4(Address from) {
#if defined(__HIP_PLATFORM_AMD__)
  return *reinterpret_cast<const unsigned*>(from);
#elif defined(FUSEDOPS_MODEL)
  return *static_cast<const unsigned*>(model::shared_pointer(from));
#else
  unsigned bits;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(from));
  return bits;
#endif
}

// Loads 16 bytes.
FUSEDOPS_DEVICE uint4 load_16(Address from) {
#if defined(__HIP_PLATFORM_AMD__)
  return *reinterpret_cast<const uint4*>(from);
#elif defined(FUSEDOPS_MODEL)
  return *static_cast<const uint4*>(model::shared_pointer(from));
#else
  uint4 bits;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(from));
  return bits;
#endif
}

// Stores 16 bytes.
FUSEDOPS_DEVICE void store_16(Address to, const uint4& bits) {
#if defined(__HIP_PLATFORM_AMD__)
  *reinterpret_cast<uint4*>(to) = bits;
#elif defined(FUSEDOPS_MODEL)
  *static_cast<uint4*>(model::shared_pointer(to)) = bits;
#else
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
#endif
}

}  // namespace fusedops::shared

namespace fusedops::async_copy {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool kSupported = true;
#else
constexpr bool kSupported = false;
#endif

// Starts to copy the first `bytes` of 16 bytes, and writes zeros for the others. Only for kernels
// that need kSupported.
FUSEDOPS_DEVICE void start_part([[maybe_unused]] shared::Address to,
                                [[maybe_unused]] const void* from,
                                [[maybe_unused]] unsigned bytes) {
#if defined(FUSEDOPS_MODEL) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  model::copy_start(to, from, bytes);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
#endif
}

// Starts to copy 16 bytes, or writes 16 zero bytes if not `valid`.
FUSEDOPS_DEVICE void start(shared::Address to, const void* from, bool valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  start_part(to, from, valid ? 16 : 0);
#else
  shared::store_16(to, valid ? *static_cast<const uint4*>(from) : uint4{});
#endif
}

// Makes a group of the copies that the thread has started since the last group.
FUSEDOPS_DEVICE void commit_group() {
#if defined(FUSEDOPS_MODEL)
  model::copy_commit();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `pending` of the thread's groups, the latest ones, have not arrived. The
// instruction needs a constant, so there are few cases: 3 and 4 wait for 2, and more than 5 wait
// for 5.
FUSEDOPS_DEVICE void wait_group([[maybe_unused]] int pending) {
#if defined(FUSEDOPS_MODEL)
  model::copy_wait(pending >= 5 ? 5 : pending >= 2 ? 2 : pending);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (pending >= 5) {
    asm volatile("cp.async.wait_group 5;" ::: "memory");
  } else if (pending >= 2) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  } else if (pending == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
#endif
}

}  // namespace fusedops::async_copy
