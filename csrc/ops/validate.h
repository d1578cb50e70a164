// Checks of arguments, and the error they throw. They are the checks of fusedops/checks.py, in the
// same order.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/runtime.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops {

// The one exception type of the host side. torch turns it into a RuntimeError.
class Error : public std::runtime_error {
 public:
  // Not from a const char*: libstdc++ has that constructor since GCC 5.
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// An error of a call that the operator's Python side may take, or has better words for.
class Refused : public Error {
 public:
  explicit Refused(const std::string& what) : Error(what) {}
};

// Throws "op: argument: expected E, found F".
[[noreturn]] inline void fail(const char* op, const char* argument, const std::string& expected,
                              const std::string& found) {
  throw Error(std::string(op) + ": " + argument + ": expected " + expected + ", found " + found);
}

// A tensor argument and the name its schema gives it.
struct Argument {
  const char* name;
  const TensorView& tensor;
};

void check_floating(const char* op, const Argument& a);
// Floating, with at least one dimension: its rows lie along the last.
void check_rows(const char* op, const Argument& a);
void check_on_gpu(const char* op, const Argument& a);
void check_same_dtype(const char* op, const Argument& a, const Argument& like);
void check_same_device(const char* op, const Argument& a, const Argument& like);
// The same dtype and device.
void check_like(const char* op, const Argument& a, const Argument& like);
// The same dtype, device and shape.
void check_alike(const char* op, const Argument& a, const Argument& like);
// `a` must have the shape of one row of `like`, which has at least one dimension.
void check_row(const char* op, const Argument& a, const Argument& like);
// The same dtype and device too.
void check_row_like(const char* op, const Argument& a, const Argument& like);
// `out`, which the caller gave for a result, must have the sizes, dtype and device of `expected`,
// and the memory that kernels write to.
void check_out(const char* op, const TensorView& out, const TensorView& expected);
// Throws if the GPU's runtime refused a launch.
void check_launch(const char* op, const Gpu& on, gpu::Status status);

}  // namespace fusedops
