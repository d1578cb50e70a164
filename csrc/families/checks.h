// Checks of arguments. What the operator's check in Python sees too is refused without a sentence:
// that check has the words, and Python asks it after a call has failed (fusedops/op.py). The
// functions here have words only for what Python cannot see while it traces.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>

#include "families/gpu.h"
#include "families/tensor.h"
#include "kernels/runtime.h"

namespace fusedops {

// The exception type of the host side. torch turns it into a RuntimeError.
class Error : public std::runtime_error {
 public:
  // Not from a const char*: libstdc++ has that constructor since GCC 5.
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// The operator does not take the arguments, or this way of calling it does not.
class Refused : public Error {
 public:
  explicit Refused(const std::string& what) : Error(what) {}
};

// Throws Refused, for the call that the thread is in.
[[noreturn]] void refuse();
inline void require(bool holds) {
  if (!holds) refuse();
}

// Throws "NAME: argument: expected E, found F", NAME being that call's.
[[noreturn]] void fail(const char* argument, const std::string& expected, const std::string& found);

inline bool is_floating(const TensorView& a) { return a.dtype <= DType::float64; }
// float32, float16 or bfloat16.
inline bool is_up_to_32_bits(DType dtype) { return dtype < DType::float64; }
// Floating, with at least one dimension: its rows lie along the last.
inline bool has_rows(const TensorView& a) { return is_floating(a) && a.dim >= 1; }
inline bool same_device(const TensorView& a, const TensorView& b) {
  return a.device.index == b.device.index;
}
// The same dtype and device.
inline bool is_like(const TensorView& a, const TensorView& like) {
  return a.dtype == like.dtype && same_device(a, like);
}
// The same dtype, device and shape.
inline bool is_alike(const TensorView& a, const TensorView& like) {
  return is_like(a, like) && same_shape(a, like);
}
// Of `like`'s dtype and device, with so many elements.
inline bool is_row(const TensorView& a, const TensorView& like, std::int64_t cols) {
  return is_like(a, like) && a.dim == 1 && a.sizes[0] == cols;
}
// One row of `like`, which has at least one dimension.
inline bool is_row_of(const TensorView& a, const TensorView& like) {
  return is_row(a, like, cols_of(like));
}

// The two take None too.
inline bool is_alike_if(const OptionalTensor& a, const TensorView& like) {
  return !a || is_alike(*a, like);
}
inline bool is_row_of_if(const OptionalTensor& a, const TensorView& like) {
  return !a || is_row_of(*a, like);
}

// Options of rotary embeddings. Whether a pair is two neighbouring elements ("interleaved"), or an
// element of each half ("half"); refuses another style.
inline bool is_interleaved(const std::string& style) {
  require(style == "interleaved" || style == "half");
  return style == "interleaved";
}
inline bool is_theta(double theta) { return theta > 0 && std::isfinite(theta); }

void check_on_gpu(const char* name, const TensorView& a);
// Kernels read and write vectors there.
void check_aligned(const char* name, const TensorView& a);
// `out`, which the caller gave for a result, must have the sizes, dtype and device of `expected`,
// and the memory that kernels write to.
void check_out(const TensorView& out, const TensorView& expected);
// Throws if the GPU's runtime refused a launch. The first is for code outside of an operator.
void check_launch(const char* name, const Gpu& on, gpu::Status status);
void check_launch(const Gpu& on, gpu::Status status);

}  // namespace fusedops
