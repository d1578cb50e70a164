#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "scale.h"

// CUDA-only, so weak: the library must load where torch has no CUDA.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void**);

using torch::stable::Tensor;

static Tensor scale(const Tensor& x, double factor) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float && x.is_contiguous(),
                  "scale: x: a contiguous float32 tensor expected");
  torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  Tensor y = torch::stable::empty_like(x);
  cudaError_t error =
      tiny_scale(static_cast<float*>(y.data_ptr()), static_cast<const float*>(x.data_ptr()),
                 static_cast<float>(factor), x.numel(), static_cast<cudaStream_t>(stream));
  STD_TORCH_CHECK(error == cudaSuccess, "scale: ", cudaGetErrorString(error));
  return y;
}

STABLE_TORCH_LIBRARY_IMPL(tiny, CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
