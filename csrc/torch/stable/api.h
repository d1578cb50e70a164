// The libtorch stable ABI (torch >= 2.11) as an Api.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <vector>

#include "ops/error.h"
#include "platform/runtime.h"
#include "torch/api.h"

// Only a torch built for a GPU has this one; weak, so that the library loads in a CPU-only torch.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void**);

namespace fusedops {

struct StableApi {
  using Tensor = torch::stable::Tensor;
  using Guard = torch::stable::accelerator::DeviceGuard;
  using Scalar = torch::headeronly::ScalarType;

  static TensorView view(const Tensor& tensor) {
    return view_of(tensor, tensor.get_device_index());
  }

  static Tensor contiguous(const Tensor& tensor) {
    return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
  }

  static Tensor clone(const Tensor& tensor) { return torch::stable::clone(tensor); }
  static Tensor empty_like(const Tensor& tensor) { return torch::stable::empty_like(tensor); }

  static Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    return torch::stable::new_empty(like, sizes, scalar_of<Scalar>(dtype));
  }

  static Tensor empty_bytes(const Tensor& like, std::int64_t count) {
    return torch::stable::new_empty(like, {count}, Scalar::Byte);
  }

  static void* data(const Tensor& tensor) { return tensor.data_ptr(); }

  static gpu::Stream stream(int device_index) {
    if (!aoti_torch_get_current_cuda_stream) {
      throw Error(kNoGpuStream);
    }
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
    return static_cast<gpu::Stream>(stream);
  }
};

}  // namespace fusedops
