// Calls kernels that are linked into the caller's library, or that lie in libraries of their own:
// the kernel libraries of a universal wheel. The source is the same for both.
//
// A file with kernels exports a host function after its definition. The function's header is the
// interface of the kernel library: numbers, pointers, and structs that are copied as bytes, so no
// object of libstdc++. The compiler refuses another. No exception may leave the function: each side
// has a copy of libstdc++ of its own.
//
//   int scale(float* y, const float* x, float factor, std::int64_t n, void* stream) { ... }
//   TORCHWHEEL_EXPORT(scale)
//
// A caller includes that header, and calls the function for a GPU by torch's number of it:
//
//   const int status = TORCHWHEEL_KERNEL(gpu, scale)(y, x, factor, n, stream);
//
// The macro takes the function's plain name; from outside its namespace, where N is it, the call is
// (*torchwheel::kernel<&N::scale>(gpu, "scale"))(y, x, factor, n, stream).
//
// In a front end (torchwheel's builder defines TORCHWHEEL_FRONT_END) the function is looked up by
// its name in the libraries that torchwheel_runtime.runtime has chosen for the GPU, once for each
// GPU. A torchwheel::NoKernel, a std::runtime_error, says that none of them has it.
//
// INTERFACE in torchwheel_runtime/builder/recipe.py is the version of what this header puts into
// libraries.
#pragma once

#include <type_traits>

#define TORCHWHEEL_EXPORT(name)                                                            \
  static_assert(::torchwheel::detail::Crosses<decltype(&name)>::value, #name               \
                ": expected numbers, pointers and structs that are copied as bytes, "      \
                "found another type, which may not cross to another library");             \
  extern "C" {                                                                             \
  __attribute__((visibility("default"))) decltype(&name) torchwheel_kernel_##name = &name; \
  }

#define TORCHWHEEL_KERNEL(gpu, name) (*::torchwheel::kernel<&name>(gpu, #name))

namespace torchwheel {

constexpr int kMostGpus = 64;  // of a process

// What an exported function may take and return.
namespace detail {

// A struct that is only declared is not looked into. (nvcc gives void and functions a size.)
template <class T, class = void>
struct Plain : std::true_type {};
template <class T>
struct Plain<T, std::enable_if_t<std::is_object_v<T> && sizeof(T) != 0>>
    : std::bool_constant<std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T>> {};

// By value, by reference, or by a pointer to it.
template <class T>
constexpr bool kCrosses = Plain<
    std::remove_cv_t<std::remove_pointer_t<std::remove_cv_t<std::remove_reference_t<T>>>>>::value;

template <class Function>
struct Crosses : std::false_type {};
template <class Result, class... Parameters>
struct Crosses<Result (*)(Parameters...)>
    : std::bool_constant<kCrosses<Result> && (kCrosses<Parameters> && ...)> {};
template <class Result, class... Parameters>
struct Crosses<Result (*)(Parameters...) noexcept> : Crosses<Result (*)(Parameters...)> {};

}  // namespace detail

}  // namespace torchwheel

#if !defined(TORCHWHEEL_FRONT_END)

namespace torchwheel {

template <auto* kLinked>
constexpr auto* kernel(int, const char*) {
  return kLinked;
}

}  // namespace torchwheel

#else

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace torchwheel {

// The libraries of a GPU do not have a kernel, or it has none.
class NoKernel : public std::runtime_error {
 public:
  // From a std::string: libstdc++ has the constructor for a const char* since GCC 5.
  explicit NoKernel(const std::string& what) : std::runtime_error(what) {}
};

class KernelLibraries {
 public:
  // `library` is a handle of dlopen that stays open. Returns whether it was added.
  bool add(int gpu, void* library) {
    if (gpu < 0 || gpu >= kMostGpus) return false;
    const std::lock_guard<std::mutex> lock(guard_);
    libraries_[gpu].push_back(library);
    return true;
  }

  void* find(int gpu, const char* name) {
    const std::string symbol = std::string("torchwheel_kernel_") + name;
    const std::lock_guard<std::mutex> lock(guard_);
    if (gpu < 0 || gpu >= kMostGpus || libraries_[gpu].empty()) throw error(gpu, "");
    for (void* const library : libraries_[gpu]) {
      if (auto* const entry = static_cast<void* const*>(dlsym(library, symbol.c_str()))) {
        return *entry;
      }
    }
    throw error(gpu, std::string(" has ") + name);
  }

 private:
  static NoKernel error(int gpu, const std::string& what) {
    return NoKernel(std::string(TORCHWHEEL_PACKAGE) +
                    ": no kernel library for cuda:" + std::to_string(gpu) + what);
  }

  std::mutex guard_;
  std::vector<void*> libraries_[kMostGpus];
};

inline KernelLibraries& kernel_libraries() {
  static KernelLibraries libraries;
  return libraries;
}

template <auto* kDeclared>
auto* kernel(int gpu, const char* name) {
  using Function = decltype(kDeclared);
  static std::atomic<Function> found[kMostGpus];
  if (gpu < 0 || gpu >= kMostGpus) return Function(kernel_libraries().find(gpu, name));
  Function function = found[gpu].load(std::memory_order_acquire);
  if (!function) {
    function = Function(kernel_libraries().find(gpu, name));
    found[gpu].store(function, std::memory_order_release);
  }
  return function;
}

}  // namespace torchwheel

// torchwheel_runtime.runtime calls it: adds a kernel library for a GPU. `used`: nothing here refers
// to it.
extern "C" __attribute__((visibility("default"), used)) inline bool torchwheel_use_kernels(
    int gpu, void* library) {
  return ::torchwheel::kernel_libraries().add(gpu, library);
}

#endif
