// The part of cuBLASLt that products need, from the library that is in the process already: torch
// loads it. It is not linked, and its header, which says what each name means, is not included. Its
// numbers and signatures are those of releases 11 to 13.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "platform/host.h"
#include "platform/runtime.h"

namespace fusedops::cublas_lt {

using Status = int;
using Object = void*;  // a handle, a descriptor, a layout or a preference
constexpr Status kSuccess = 0;

enum DataType { kFloat = 0, kHalf = 2, kBfloat16 = 14 };
enum ComputeType { kFloatSum = 68 };
enum Transpose : std::int32_t { kAsIs = 0, kTransposed = 1 };
enum DescriptorKey { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum PreferenceKey { kMostWorkspace = 1, kReductions = 3, kAlignmentA = 5 };  // A, B, C, D
enum ConfigKey { kTile = 1, kSplits = 2 };
enum Tile : std::uint32_t { k512x64 = 25, k384x64 = 263, k448x64 = 272 };
constexpr std::uint32_t kReduceAsFloat = 2;
constexpr std::uint32_t kPlain = 1, kRelu = 2, kBias = 4, kGelu = 32;  // epilogues

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Functions {
  std::size_t (*version)();
  Status (*create)(Object* handle);
  Status (*make_descriptor)(Object* descriptor, int compute, int scale);
  Status (*free_descriptor)(Object descriptor);
  Status (*set_descriptor)(Object descriptor, int key, const void* value, std::size_t bytes);
  Status (*make_layout)(Object* layout, int type, std::uint64_t rows, std::uint64_t cols,
                        std::int64_t pitch);
  Status (*free_layout)(Object layout);
  Status (*make_preference)(Object* preference);
  Status (*free_preference)(Object preference);
  Status (*set_preference)(Object preference, int key, const void* value, std::size_t bytes);
  Status (*choose)(Object handle, Object descriptor, Object a, Object b, Object c, Object d,
                   Object preference, int most, Heuristic* found, int* count);
  Status (*get)(const Algorithm* algorithm, int key, void* value, std::size_t bytes,
                std::size_t* written);
  Status (*multiply)(Object handle, Object descriptor, const void* alpha, const void* a,
                     Object layout_a, const void* b, Object layout_b, const void* beta,
                     const void* c, Object layout_c, void* d, Object layout_d,
                     const Algorithm* algorithm, void* workspace, std::size_t bytes,
                     gpu::Stream stream);
};

// The functions, or null if no such library is in the process.
inline const Functions* functions() {
  static Functions found;
  static const bool complete = [] {
    if (gpu::kModelled) return false;
    void* library = nullptr;
    for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      if (!library) library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    }
    const auto find = [&](auto& function, const char* name) {
      void* const address = dlsym(library, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
      return address != nullptr;
    };
    return library && find(found.version, "cublasLtGetVersion") &&
           find(found.create, "cublasLtCreate") &&
           find(found.make_descriptor, "cublasLtMatmulDescCreate") &&
           find(found.free_descriptor, "cublasLtMatmulDescDestroy") &&
           find(found.set_descriptor, "cublasLtMatmulDescSetAttribute") &&
           find(found.make_layout, "cublasLtMatrixLayoutCreate") &&
           find(found.free_layout, "cublasLtMatrixLayoutDestroy") &&
           find(found.make_preference, "cublasLtMatmulPreferenceCreate") &&
           find(found.free_preference, "cublasLtMatmulPreferenceDestroy") &&
           find(found.set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
           find(found.choose, "cublasLtMatmulAlgoGetHeuristic") &&
           find(found.get, "cublasLtMatmulAlgoConfigGetAttribute") &&
           find(found.multiply, "cublasLtMatmul");
  }();
  return complete ? &found : nullptr;
}

}  // namespace fusedops::cublas_lt
