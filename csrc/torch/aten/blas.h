// torch's matrix products (torch/blas.h) through libtorch's C++ API.
#pragma once

#include <ATen/ops/_addmm_activation_cuda_dispatch.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <torch/csrc/inductor/inductor_ops.h>

#include "torch/blas.h"

// The kernels of the CUDA key, called without the dispatcher: it costs time, and autocast would
// change the results' types. Only a torch built for a GPU has them, so they are weak.
namespace at::cuda {
__attribute__((weak)) Tensor& mm_out(Tensor&, const Tensor&, const Tensor&);
__attribute__((weak)) Tensor& addmm_out(Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                        const Scalar&, const Scalar&);
__attribute__((weak)) Tensor _addmm_activation(const Tensor&, const Tensor&, const Tensor&,
                                               const Scalar&, const Scalar&, bool);
}  // namespace at::cuda

namespace fusedops {

struct Blas {
  using MmOut = Tensor&(Tensor&, const Tensor&, const Tensor&);
  using AddmmOut = Tensor&(Tensor&, const Tensor&, const Tensor&, const Tensor&, const at::Scalar&,
                           const at::Scalar&);

  // A view of a contiguous tensor's elements as a matrix.
  static Tensor matrix(const Tensor& tensor, const Matrix& layout) {
    return torch::inductor::_reinterpret_tensor(tensor, layout.sizes, layout.strides);
  }

  static Tensor zeros(const Tensor& like, std::int64_t count, DType dtype) {
    return Api::temporary(like, {count}, dtype).zero_();
  }

  static void copy(const Tensor& to, const Tensor& from) { to.copy_(from); }

  // out = a b, rounded once.
  static void mm(Tensor& out, const Tensor& a, const Tensor& b) {
    available<MmOut>(at::cuda::mm_out)(out, a, b);
  }

  // out = a b + row, rounded once.
  static void addmm(Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) {
    available<AddmmOut>(at::cuda::addmm_out)(out, row, a, b, 1, 1);
  }

  static bool has_addmm_activation() { return at::cuda::_addmm_activation != nullptr; }

  // gelu(a b + row) in its tanh form, or relu(a b + row).
  static Tensor addmm_activation(const Tensor& row, const Tensor& a, const Tensor& b, bool gelu) {
    return at::cuda::_addmm_activation(row, a, b, 1, 1, gelu);
  }
};

}  // namespace fusedops
