// torch's matrix products (torch/blas.h) through the stable ABI.
#pragma once

#include "torch/blas.h"

#if defined(FUSEDOPS_MODEL)  // products of CPU tensors
#define aoti_torch_cuda_mm_out aoti_torch_cpu_mm_out
#define aoti_torch_cuda_addmm_out aoti_torch_cpu_addmm_out
#define aoti_torch_cuda__addmm_activation aoti_torch_cpu__addmm_activation
#endif

// Declared in torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h. Only a torch built for a GPU
// has them, so they are weak. They bypass the dispatcher, so autocast does not change the types.
extern "C" {
__attribute__((weak)) AOTITorchError aoti_torch_cuda_mm_out(AtenTensorHandle, AtenTensorHandle,
                                                            AtenTensorHandle);
__attribute__((weak)) AOTITorchError aoti_torch_cuda_addmm_out(AtenTensorHandle, AtenTensorHandle,
                                                               AtenTensorHandle, AtenTensorHandle,
                                                               double, double);
__attribute__((weak)) AOTITorchError aoti_torch_cuda__addmm_activation(AtenTensorHandle,
                                                                       AtenTensorHandle,
                                                                       AtenTensorHandle, double,
                                                                       double, std::int32_t,
                                                                       AtenTensorHandle*);
}

namespace fusedops {

struct Blas {
  static Tensor matrix(const Tensor& tensor, const Matrix& layout) {
    AtenTensorHandle view = nullptr;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch__reinterpret_tensor(tensor.get(), 2, layout.sizes, layout.strides, 0, &view));
    return Tensor(view);
  }

  static Tensor zeros(const Tensor& like, std::int64_t count, DType dtype) {
    Tensor made = Api::temporary(like, {count}, dtype);
    return torch::stable::zero_(made);
  }

  static void copy(Tensor to, const Tensor& from) { torch::stable::copy_(to, from); }

  static void mm(Tensor& out, const Tensor& a, const Tensor& b) {
    TORCH_ERROR_CODE_CHECK(available(aoti_torch_cuda_mm_out)(out.get(), a.get(), b.get()));
  }

  static void addmm(Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) {
    TORCH_ERROR_CODE_CHECK(
        available(aoti_torch_cuda_addmm_out)(out.get(), row.get(), a.get(), b.get(), 1, 1));
  }

  static bool has_addmm_activation() { return aoti_torch_cuda__addmm_activation != nullptr; }

  static Tensor addmm_activation(const Tensor& row, const Tensor& a, const Tensor& b, bool gelu) {
    AtenTensorHandle result = nullptr;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_cuda__addmm_activation(row.get(), a.get(), b.get(), 1, 1, gelu, &result));
    return Tensor(result);
  }
};

}  // namespace fusedops
