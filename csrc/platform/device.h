// The current GPU: its choice and its facts. Host only.
#pragma once

#include "platform/status.h"

namespace fusedops::gpu {

// Whether a kernel is chosen by what was measured. Not in the model: there it takes every call that
// it supports, so that tests of small tensors reach it.
#if defined(FUSEDOPS_MODEL)
constexpr bool kMeasured = false;
#else
constexpr bool kMeasured = true;
#endif

// Makes a GPU the calling thread's current one. `before` is set to the one that was.
inline Status make_current(int number, int& before) {
#if defined(FUSEDOPS_MODEL)
  before = number;
  return kSuccess;
#elif defined(__HIP_PLATFORM_AMD__)
  const Status status = hipGetDevice(&before);
  return status == kSuccess && before != number ? hipSetDevice(number) : status;
#else
  const Status status = cudaGetDevice(&before);
  return status == kSuccess && before != number ? cudaSetDevice(number) : status;
#endif
}

inline Status multiprocessors(int& count) {
#if defined(FUSEDOPS_MODEL)
  count = model::gpu().multiprocessors;
  return kSuccess;
#elif defined(__HIP_PLATFORM_AMD__)
  int device = 0;
  const Status status = hipGetDevice(&device);
  if (status != kSuccess) return status;
  return hipDeviceGetAttribute(&count, hipDeviceAttributeMultiprocessorCount, device);
#else
  int device = 0;
  const Status status = cudaGetDevice(&device);
  if (status != kSuccess) return status;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
#endif
}

// The bytes of dynamic shared memory that a block may have if a multiprocessor runs `blocks` of
// them. 1 KiB of its share is left for what it has beside that.
inline Status shared_memory(int blocks, int& bytes) {
#if defined(FUSEDOPS_MODEL)
  bytes = model::gpu().shared_of_sm / blocks - 1024;
  return kSuccess;
#else
  int device = 0, all = 0;
#if defined(__HIP_PLATFORM_AMD__)
  Status status = hipGetDevice(&device);
  if (status != kSuccess) return status;
  status = hipDeviceGetAttribute(&all, hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, device);
#else
  Status status = cudaGetDevice(&device);
  if (status != kSuccess) return status;
  status = cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
#endif
  bytes = all / blocks - 1024;
  return status;
#endif
}

// Lets a kernel have `bytes` of dynamic shared memory. The default limit is 48 KiB.
template <class Kernel>
Status allow_shared(Kernel* kernel, int bytes) {
#if defined(FUSEDOPS_MODEL)
  return model::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
#elif defined(__HIP_PLATFORM_AMD__)
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             hipFuncAttributeMaxDynamicSharedMemorySize, bytes);
#else
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
#endif
}

// Lets a kernel have clusters of more than 8 blocks (cluster.h), where the GPU has clusters.
template <class Kernel>
Status allow_large_clusters([[maybe_unused]] Kernel* kernel) {
#if defined(FUSEDOPS_MODEL)
  return model::allow_large_clusters(reinterpret_cast<const void*>(kernel));
#elif defined(__HIP_PLATFORM_AMD__)
  return kInvalidValue;
#else
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
#endif
}

// How many clusters of `cluster` blocks of a kernel the GPU runs at once.
template <class Kernel>
Status clusters_at_once([[maybe_unused]] Kernel* kernel, [[maybe_unused]] unsigned cluster,
                        [[maybe_unused]] unsigned threads, [[maybe_unused]] unsigned shared,
                        int& count) {
#if defined(FUSEDOPS_MODEL)
  count = 2;  // so that few rows are enough for each to have several
  return kSuccess;
#elif defined(__HIP_PLATFORM_AMD__)
  count = 0;
  return kInvalidValue;
#else
  cudaLaunchAttribute in_clusters{};
  in_clusters.id = cudaLaunchAttributeClusterDimension;
  in_clusters.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = cluster;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.attrs = &in_clusters;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&count, kernel, &config);
#endif
}

// The major number of the compute capability; 0 on AMD's GPUs, or if there is none.
inline int major_capability() {
#if defined(FUSEDOPS_MODEL)
  return model::gpu().major;
#elif defined(__HIP_PLATFORM_AMD__)
  return 0;
#else
  int device = 0, major = 0;
  const bool found =
      cudaGetDevice(&device) == kSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == kSuccess;
  return found ? major : 0;
#endif
}

// Whether the GPU has tensor cores (tensor_core.h) and asynchronous copies (shared.h).
inline bool has_tensor_cores() { return major_capability() >= 8; }

// Whether the GPU has clusters (cluster.h).
inline bool has_clusters() {
  const int major = major_capability();
  return major == 9 || major == 10;
}

}  // namespace fusedops::gpu
