// Types and limits shared by the kernels' host interfaces: element types, activations, launch
// limits.
#pragma once

#include <cstdint>

namespace fusedops {

// The kernels compute in the first four.
enum class DType : int {
  float32,
  float16,
  bfloat16,
  float64,
  boolean,
  int8,
  uint8,
  int32,
  int64,
  unsupported
};
enum class Activation : int { identity, relu, gelu_tanh, gelu_erf, silu };

constexpr int kVectorBytes = 16;  // one access of a thread
constexpr int kThreads = 128;     // threads of a block; small blocks drain and refill sooner

constexpr int element_size(DType dtype) {
  return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
}
// The size of the type that sums are kept in: double for float64, float for the others.
constexpr int accumulator_size(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace fusedops
