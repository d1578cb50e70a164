// Words shared by the kernels' host interfaces: element types, activations, launch limits.
#pragma once

#include <cstdint>

namespace fusedops {

enum class DType : int { float32, float16, bfloat16, float64, unsupported };
enum class Activation : int { identity, relu, gelu_tanh, gelu_erf, silu };

constexpr int kVectorBytes = 16;  // one access of one thread
constexpr int kThreads = 128;     // of a block; smaller ones drain and refill sooner

constexpr int element_size(DType dtype) {
  return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
}
// The type sums are kept in: double for float64, float for the rest.
constexpr int accumulator_size(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace fusedops
