#include "ops/validate.h"

#include <cstring>

namespace fusedops {
namespace {

std::string that_of(const std::string& what, const Argument& like) {
  return what + " (that of " + like.name + ")";
}

}  // namespace

void check_floating(const char* op, const Argument& a) {
  if (a.tensor.dtype != DType::unsupported) return;
  fail(op, a.name, "dtype float32, float16, bfloat16 or float64", a.tensor.dtype_name);
}

void check_rows(const char* op, const Argument& a) {
  check_floating(op, a);
  if (a.tensor.dim < 1) fail(op, a.name, "at least 1 dimension", "0");
}

void check_on_gpu(const char* op, const Argument& a) {
  if (std::strcmp(a.tensor.device.type, "cuda") == 0) return;
  fail(op, a.name, "a tensor on a GPU", to_string(a.tensor.device));
}

void check_same_dtype(const char* op, const Argument& a, const Argument& like) {
  if (has_dtype(a.tensor, like.tensor.dtype_name)) return;
  fail(op, a.name, that_of(std::string("dtype ") + like.tensor.dtype_name, like),
       a.tensor.dtype_name);
}

void check_same_device(const char* op, const Argument& a, const Argument& like) {
  if (same_device(a.tensor, like.tensor)) return;
  fail(op, a.name, that_of("device " + to_string(like.tensor.device), like),
       to_string(a.tensor.device));
}

void check_like(const char* op, const Argument& a, const Argument& like) {
  check_same_dtype(op, a, like);
  check_same_device(op, a, like);
}

void check_alike(const char* op, const Argument& a, const Argument& like) {
  check_like(op, a, like);
  if (same_shape(a.tensor, like.tensor)) return;
  fail(op, a.name, that_of("shape " + shape_of(like.tensor), like), shape_of(a.tensor));
}

void check_row(const char* op, const Argument& a, const Argument& like) {
  const std::int64_t cols = like.tensor.sizes[like.tensor.dim - 1];
  if (a.tensor.dim == 1 && a.tensor.sizes[0] == cols) return;
  fail(op, a.name, "shape [" + std::to_string(cols) + "] (the last dimension of " + like.name + ")",
       shape_of(a.tensor));
}

void check_row_like(const char* op, const Argument& a, const Argument& like) {
  check_like(op, a, like);
  check_row(op, a, like);
}

void check_out(const char* op, const TensorView& out, const TensorView& expected) {
  if (!same_shape(out, expected)) fail(op, "out", "shape " + shape_of(expected), shape_of(out));
  if (!has_dtype(out, expected.dtype_name)) {
    fail(op, "out", std::string("dtype ") + expected.dtype_name, out.dtype_name);
  }
  if (!same_device(out, expected)) {
    fail(op, "out", "device " + to_string(expected.device), to_string(out.device));
  }
  if (!is_contiguous(out) || !aligned(out.data)) {
    fail(op, "out", "contiguous memory that starts on 16 bytes", "strides " + strides_of(out));
  }
}

void check_launch(const char* op, const Gpu& on, gpu::Status status) {
  if (status == gpu::kSuccess) return;
  throw Error(std::string(op) +
              ": the GPU refused the kernel: " + FUSEDOPS_KERNEL(on, describe)(status));
}

}  // namespace fusedops
