// The side of a front end that takes kernel libraries from the loader (torchwheel.runtime).
#include <dlfcn.h>

#include <string>

#include "ops/gpu.h"
#include "ops/validate.h"

namespace fusedops {
namespace {

std::atomic<void*> libraries[kMostGpus];

}  // namespace

void* find_kernel(int gpu, const char* name) {
  void* library = gpu >= 0 && gpu < kMostGpus ? libraries[gpu].load() : nullptr;
  if (!library) throw Error("fusedops: no kernel library for cuda:" + std::to_string(gpu));
  void* const* entry =
      static_cast<void* const*>(dlsym(library, (std::string("fusedops_kernel_") + name).c_str()));
  if (!entry) throw Error(std::string("fusedops: the kernel library has no kernel ") + name);
  return *entry;
}

}  // namespace fusedops

// Sets the kernel library of a GPU: a handle of dlopen that stays open. Returns whether it was set.
extern "C" __attribute__((visibility("default"))) bool torchwheel_use_kernels(int gpu,
                                                                              void* library) {
  if (gpu < 0 || gpu >= fusedops::kMostGpus) return false;
  fusedops::libraries[gpu].store(library);
  return true;
}
