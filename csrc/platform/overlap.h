// Kernels that start while the previous kernel on the stream still drains: its last blocks and this
// kernel's launch overlap. NVIDIA GPUs from compute capability 9.0 on; elsewhere the launch is an
// ordinary one.
//
// Such a kernel must not read anything before wait(), not even data that seems to come from the
// host: the previous kernel may have written it. The compiler must not move a read there either, as
// it may do with reads that it takes for read-only (const __restrict__, __ldg, ld.global.nc).
// tests/integration/test_overlap.py checks the machine code of all kernels. A prefetch to L2 is not
// a read (fetch.h).
#pragma once

#include "platform/math.h"

namespace fusedops::overlap {

// Allows the next kernel to start before this one's blocks end, once all of them have called this
// or have ended. Such a block is replaced later, which slows kernels of many short blocks down.
FUSEDOPS_DEVICE void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(FUSEDOPS_MODEL)
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for the previous kernels: what they have written is visible from here on. Every thread
// calls it first. `early` allows the next kernel before that.
FUSEDOPS_DEVICE void wait(bool early = true) {
  if (early) allow_next();
#if defined(FUSEDOPS_MODEL)
  model::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// wait() for a grid along x. The next kernel may start once this one's last blocks have passed it.
// If it could start earlier, waiting kernels would take multiprocessors from the kernel whose turn
// it is. Blocks before the last ones need not allow it, because they end.
FUSEDOPS_DEVICE void wait_in_turn() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr unsigned kLast = 1 << 11;  // more blocks than a large GPU runs at once
  wait(false);
  if (gridDim.x - blockIdx.x <= kLast) allow_next();
#endif
}

// The configuration of a launch.
struct Blocks {
  dim3 grid;
  dim3 threads;
  unsigned cluster = 1;  // blocks along x that form a cluster (cluster.h)
  unsigned shared = 0;   // bytes of dynamic shared memory of a block
};

// Launches a kernel that begins with wait().
template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), const Blocks& blocks,
                   [[maybe_unused]] gpu::Stream stream, Arguments... arguments) {
#if defined(FUSEDOPS_MODEL)
  const bool early = model::gpu().major >= 9;
  const model::Grid grid{blocks.grid, blocks.threads, blocks.cluster, blocks.shared, early};
  return model::launch(kernel, grid, arguments...);
#elif !defined(__HIP_PLATFORM_AMD__)
  int device = 0, major = 0;
  gpu::Status status = cudaGetDevice(&device);
  if (status != gpu::kSuccess) return status;
  status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != gpu::kSuccess) return status;
  if (major >= 9) {
    cudaLaunchAttribute with[2] = {};
    with[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with[0].val.programmaticStreamSerializationAllowed = 1;
    with[1].id = cudaLaunchAttributeClusterDimension;
    with[1].val.clusterDim = {blocks.cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = blocks.grid;
    config.blockDim = blocks.threads;
    config.dynamicSmemBytes = blocks.shared;
    config.stream = static_cast<gpu::NativeStream>(stream);
    config.attrs = with;
    config.numAttrs = blocks.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  }
#endif
#if !defined(FUSEDOPS_MODEL)
  if (blocks.cluster > 1) return gpu::kInvalidValue;
  kernel<<<blocks.grid, blocks.threads, blocks.shared, static_cast<gpu::NativeStream>(stream)>>>(
      Parameters(arguments)...);
  return gpu::last_status();
#endif
}

// Launches it in clusters of so many blocks along x.
template <class... Parameters, class... Arguments>
gpu::Status launch_clusters(void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                            unsigned cluster, gpu::Stream stream, Arguments... arguments) {
  return launch(kernel, Blocks{grid, threads, cluster}, stream, arguments...);
}

template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), dim3 grid, dim3 threads, gpu::Stream stream,
                   Arguments... arguments) {
  return launch(kernel, Blocks{grid, threads}, stream, arguments...);
}

template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), std::int64_t blocks, dim3 threads,
                   gpu::Stream stream, Arguments... arguments) {
  if (blocks > gpu::kMostBlocks) return gpu::kInvalidValue;
  return launch(kernel, dim3(static_cast<unsigned>(blocks)), threads, stream, arguments...);
}

}  // namespace fusedops::overlap
