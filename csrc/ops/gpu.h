// The GPU that a call runs on, and its kernels. They are linked into the caller's library; or, in a
// front end (TORCHWHEEL_FRONT_END), they are in a library of their own that knows no torch, so that
// one front end serves the kernel libraries of several toolkits, each on the GPUs it has code for.
#pragma once

#include "platform/runtime.h"

#if defined(TORCHWHEEL_FRONT_END)
#include <atomic>
#endif

namespace fusedops {

constexpr int kMostGpus = 64;

struct Gpu {
  int index;  // as torch counts
  gpu::Stream stream;
};

#if defined(TORCHWHEEL_FRONT_END)

// The function `name` of the kernel library that was chosen for the GPU. Throws if there is none.
void* find_kernel(int gpu, const char* name);

template <auto* kDeclared>
auto* kernel_of(const Gpu& on, const char* name) {
  using Function = decltype(kDeclared);
  static std::atomic<Function> found[kMostGpus];
  if (on.index < 0 || on.index >= kMostGpus) return Function(find_kernel(on.index, name));
  Function function = found[on.index].load(std::memory_order_acquire);
  if (!function) {
    function = Function(find_kernel(on.index, name));
    found[on.index].store(function, std::memory_order_release);
  }
  return function;
}

#else

template <auto* kLinked>
auto* kernel_of(const Gpu&, const char*) {
  return kLinked;
}

#endif

}  // namespace fusedops

// A host function of kernels/, for the GPU `on`.
#define FUSEDOPS_KERNEL(on, name) (*::fusedops::kernel_of<&::fusedops::kernels::name>(on, #name))
