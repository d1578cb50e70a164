// The side of a front end that takes kernel libraries from the loader (torchwheel.runtime).
#include <dlfcn.h>

#include <mutex>
#include <string>
#include <vector>

#include "ops/gpu.h"
#include "ops/validate.h"

namespace fusedops {
namespace {

std::mutex guard;
std::vector<void*> libraries[kMostGpus];  // of each GPU, handles of dlopen that stay open

}  // namespace

void* find_kernel(int gpu, const char* name) {
  const std::string symbol = std::string("torchwheel_kernel_") + name;
  const std::lock_guard<std::mutex> lock(guard);
  if (gpu < 0 || gpu >= kMostGpus || libraries[gpu].empty()) {
    throw Error("fusedops: no kernel library for cuda:" + std::to_string(gpu));
  }
  for (void* const library : libraries[gpu]) {
    if (auto* const entry = static_cast<void* const*>(dlsym(library, symbol.c_str()))) {
      return *entry;
    }
  }
  throw Error(std::string("fusedops: no kernel library for cuda:") + std::to_string(gpu) + " has " +
              name);
}

}  // namespace fusedops

// Adds a kernel library for a GPU: a handle of dlopen that stays open. Returns whether it was
// added.
extern "C" __attribute__((visibility("default"))) bool torchwheel_use_kernels(int gpu,
                                                                              void* library) {
  if (gpu < 0 || gpu >= fusedops::kMostGpus) return false;
  const std::lock_guard<std::mutex> lock(fusedops::guard);
  fusedops::libraries[gpu].push_back(library);
  return true;
}
