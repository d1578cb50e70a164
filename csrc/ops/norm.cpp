#include "ops/norm.h"

#include "ops/error.h"

namespace fusedops::ops {
namespace {

kernels::Norm check_x(const char* op, bool centered, const Argument& x, double eps) {
  check_floating(op, x);
  if (x.tensor.dim < 1) fail(op, x.name, "at least 1 dimension", "0");
  const std::int64_t cols = x.tensor.sizes[x.tensor.dim - 1];
  const std::int64_t rows = cols == 0 ? 0 : elements_of(x.tensor) / cols;
  return {x.tensor.dtype, centered, rows, cols, eps};
}

void check_like(const char* op, const Argument& a, const Argument& x) {
  check_same_dtype(op, a, x);
  check_same_device(op, a, x);
}

void check_row_like(const char* op, const Argument* row, const Argument& x) {
  if (row == nullptr) return;
  check_like(op, *row, x);
  check_row(op, *row, x);
}

void check_matrix_like(const char* op, const Argument* matrix, const Argument& x) {
  if (matrix == nullptr) return;
  check_like(op, *matrix, x);
  check_same_shape(op, *matrix, x);
}

}  // namespace

kernels::Norm check_norm(const char* op, const Argument& x, const NormOperands& with, double eps) {
  const kernels::Norm call = check_x(op, with.beta != nullptr, x, eps);
  check_row_like(op, with.bias, x);
  check_matrix_like(op, with.residual, x);
  check_row_like(op, with.gamma, x);
  check_row_like(op, with.beta, x);
  return call;
}

kernels::Norm check_norm_backward(const char* op, bool centered, const Argument& x,
                                  const Argument& gamma,
                                  std::initializer_list<const Argument*> grads, double eps) {
  const kernels::Norm call = check_x(op, centered, x, eps);
  check_row_like(op, &gamma, x);
  for (const Argument* grad : grads) check_matrix_like(op, grad, x);
  return call;
}

void norm(const char* op, const kernels::Norm& call, const kernels::NormTensors& tensors,
          gpu::Stream stream) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(op, kernels::norm(call, tensors, stream));
}

void norm_backward(const char* op, const kernels::Norm& call,
                   const kernels::NormBackwardTensors& tensors, gpu::Stream stream) {
  if (call.cols == 0) return;  // with no rows there are still zero gradients of gamma and beta
  check_launch(op, kernels::norm_backward(call, tensors, stream));
}

}  // namespace fusedops::ops
