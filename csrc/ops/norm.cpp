#include "ops/norm.h"

namespace fusedops::ops {
namespace {

kernels::Norm check_x(const char* op, bool centered, const Argument& x, double eps) {
  check_rows(op, x);
  return {x.tensor.dtype, centered, rows_of(x.tensor), x.tensor.sizes[x.tensor.dim - 1], eps};
}

using Check = void(const char* op, const Argument& a, const Argument& like);

void check_if(Check* check, const char* op, const Argument* a, const Argument& x) {
  if (a) check(op, *a, x);
}

}  // namespace

kernels::Norm check_norm(const char* op, const Argument& x, const NormOperands& with, double eps) {
  const kernels::Norm call = check_x(op, with.beta != nullptr, x, eps);
  check_if(check_row_like, op, with.bias, x);
  check_if(check_alike, op, with.residual, x);
  check_if(check_row_like, op, with.gamma, x);
  check_if(check_row_like, op, with.beta, x);
  return call;
}

kernels::Norm check_norm_backward(const char* op, bool centered, const Argument& x,
                                  const Argument& gamma,
                                  std::initializer_list<const Argument*> grads, double eps) {
  const kernels::Norm call = check_x(op, centered, x, eps);
  check_row_like(op, gamma, x);
  for (const Argument* grad : grads) check_if(check_alike, op, grad, x);
  return call;
}

void norm(const char* op, const kernels::Norm& call, const kernels::NormTensors& tensors,
          const Gpu& on) {
  if (call.rows == 0 || call.cols == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, norm)(call, tensors, on.stream));
}

void norm_backward(const char* op, const kernels::Norm& call,
                   const kernels::NormBackwardTensors& tensors, const Gpu& on) {
  if (call.cols == 0)
    return;  // with no rows, zero gradients of gamma and beta must still be written
  check_launch(op, on, FUSEDOPS_KERNEL(on, norm_backward)(call, tensors, on.stream));
}

}  // namespace fusedops::ops
