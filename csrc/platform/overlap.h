// Kernels that start while the previous kernel on the stream still drains: its last blocks and this
// kernel's launch overlap. NVIDIA GPUs from compute capability 9.0 on; elsewhere the launch is an
// ordinary one.
//
// Such a kernel must not read anything before wait(), not even data that seems to come from the
// host: the previous kernel may have written it. The compiler must not move a read there either, as
// it may do with reads that it takes for read-only (const __restrict__, __ldg, ld.global.nc).
// tests/integration/test_jit_families.py checks the machine code of all kernels. A prefetch to L2
// is not a read (fetch.h). The one exception is memory that a launch calls Constant: a kernel may
// copy that to its shared memory, asynchronously, before wait().
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

// Memory that nothing writes while kernels before the launch may run. Whoever makes one has been
// told so by the caller of an operator. The model fails a kernel that reads other memory early.
struct Constant {
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

// The configuration of a launch.
struct Blocks {
  dim3 grid;
  dim3 threads;
  unsigned cluster = 0;        // blocks along x that form a cluster (cluster.h); 0: none do
  unsigned shared = 0;         // bytes of dynamic shared memory of a block
  Constant constants[2] = {};  // what the kernel may read before wait()
};

#if !defined(FUSEDOPS_MODEL) && !defined(__HIP_PLATFORM_AMD__)
// Whether the GPU has compute capability 9.0 or more.
inline gpu::Status is_90_or_more(int gpu, bool& is) {
  int major = 0;
  const auto status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  is = major >= 9;
  return status;
}

// Whether kernels on the current GPU may start early. Where all visible GPUs are alike, which is
// asked once, a launch need not ask which is the current one.
inline gpu::Status starts_early(bool& early) {
  enum class Visible { all, none, some };
  static const Visible visible = [] {
    int count = 0, early_ones = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return Visible::some;
    for (int gpu = 0; gpu < count; ++gpu) {
      bool is = false;
      if (is_90_or_more(gpu, is) != gpu::kSuccess) return Visible::some;
      early_ones += is;
    }
    return early_ones == count ? Visible::all : early_ones ? Visible::some : Visible::none;
  }();
  early = visible == Visible::all;
  if (visible != Visible::some) return gpu::kSuccess;
  int gpu = 0;
  const auto status = cudaGetDevice(&gpu);
  return status == cudaSuccess ? is_90_or_more(gpu, early) : gpu::Status{status};
}
#endif

// Launches a kernel that begins with wait().
template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), const Blocks& blocks,
                   [[maybe_unused]] gpu::Stream stream, Arguments... arguments) {
#if defined(FUSEDOPS_MODEL)
  const bool early = model::gpu().major >= 9;
  model::Grid grid{blocks.grid, blocks.threads, blocks.cluster, blocks.shared, early};
  for (int i = 0; i < 2; ++i) {
    grid.constants[i] = {blocks.constants[i].data, blocks.constants[i].bytes};
  }
  return model::launch(kernel, grid, arguments...);
#elif !defined(__HIP_PLATFORM_AMD__)
  bool may_start_early = false;
  const gpu::Status status = starts_early(may_start_early);
  if (status != gpu::kSuccess) return status;
  if (may_start_early) {
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
    config.numAttrs = blocks.cluster > 0 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  }
#endif
#if !defined(FUSEDOPS_MODEL)
  if (blocks.cluster > 0) return gpu::kInvalidValue;
  kernel<<<blocks.grid, blocks.threads, blocks.shared, static_cast<gpu::NativeStream>(stream)>>>(
      Parameters(arguments)...);
  return gpu::last_status();
#endif
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
