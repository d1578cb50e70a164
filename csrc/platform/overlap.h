// Kernels that start while the one before them on the stream still drains: its last blocks and this
// one's launch overlap. NVIDIA GPUs from compute capability 9.0 on; elsewhere an ordinary launch.
//
// Such a kernel reads nothing before wait(), not even what only the host seems to write: the kernel
// before it may. Nor may the compiler move a read there, as it may any that it takes for read-only
// (const __restrict__, __ldg, ld.global.nc). tests/integration/test_overlap.py looks at the machine
// code of all kernels. To ask for bytes in L2 is no read (platform/fetch.h).
#pragma once

#include "platform/math.h"

namespace fusedops::overlap {

// The next kernel may start before this one's blocks end, once all of them have come here or ended.
// A block that allows that is replaced later, which kernels of many short blocks feel.
FUSEDOPS_DEVICE void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The first statement of such a kernel, in every thread: what the kernels before it have written is
// there from here on. `early`: it allows the next one before that.
FUSEDOPS_DEVICE void wait(bool early = true) {
  if (early) allow_next();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// wait() for a grid along x. The next kernel may start once this one's last blocks have what they
// wait for: if it could before, all the kernels that wait would take multiprocessors from the one
// whose turn it is. The blocks before the last need not allow it; an end counts too.
FUSEDOPS_DEVICE void wait_in_turn() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr unsigned kLast = 1 << 11;  // more than a large GPU runs at once
  wait(false);
  if (gridDim.x - blockIdx.x <= kLast) allow_next();
#endif
}

// What a kernel is launched with.
struct Blocks {
  dim3 grid;
  dim3 threads;
  unsigned cluster = 1;  // blocks along x that are one (platform/cluster.h)
  unsigned shared = 0;   // dynamic shared memory of a block in bytes
};

// gpu::launch for a kernel that begins with wait().
template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), const Blocks& blocks, gpu::Stream stream,
                   Arguments... arguments) {
#if !defined(__HIP_PLATFORM_AMD__)
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
    config.stream = stream;
    config.attrs = with;
    config.numAttrs = blocks.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  }
#endif
  if (blocks.cluster > 1) return gpu::kInvalidValue;
  kernel<<<blocks.grid, blocks.threads, blocks.shared, stream>>>(Parameters(arguments)...);
  return gpu::last_status();
}

// The same in clusters of so many blocks along x.
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
