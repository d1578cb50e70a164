// What host code must know of the platform, the same for CUDA and HIP. For the model of a GPU
// (docs/emulation.md) the CPU's tensors play those of the GPU, and torch's functions for the CPU
// those for the GPU.
#pragma once

namespace fusedops::gpu {

#if defined(FUSEDOPS_MODEL)
constexpr bool kModelled = true;
// There thread_local is the blocks' shared memory, and one thread calls operators.
#define FUSEDOPS_PER_THREAD static
#define FUSEDOPS_DISPATCH_KEY CPU  // torch's, which the operators are registered for
#define FUSEDOPS_ATEN cpu          // the namespace in at:: of that key's functions
#define FUSEDOPS_AOTI(name) aoti_torch_cpu_##name    // such a function in torch's C interface
#define FUSEDOPS_EMPTY_STRIDED "_empty_strided_cpu"  // such a function in Python
#else
constexpr bool kModelled = false;
#define FUSEDOPS_PER_THREAD static thread_local
#define FUSEDOPS_DISPATCH_KEY CUDA
#define FUSEDOPS_ATEN cuda
#define FUSEDOPS_AOTI(name) aoti_torch_cuda_##name
#define FUSEDOPS_EMPTY_STRIDED "_empty_strided_cuda"
#endif

}  // namespace fusedops::gpu
