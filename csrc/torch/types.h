// torch's element types, tensors and streams as the families see them. The templates serve
// both of torch's C++ APIs: torch::stable and ATen.
#pragma once

#include <cstdint>
#include <string>

#include "families/checks.h"
#include "platform/host.h"

// torch's own function for either flavour, from 2.6 on, and for CUDA and ROCm alike. Only a torch
// built for a GPU has it. It is declared weak, so that the library loads in a CPU-only torch.
extern "C" __attribute__((weak)) std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t,
                                                                                 void**);

namespace fusedops {

template <class Scalar>
inline DType dtype_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::Float:
      return DType::float32;
    case Scalar::Half:
      return DType::float16;
    case Scalar::BFloat16:
      return DType::bfloat16;
    case Scalar::Double:
      return DType::float64;
    case Scalar::Bool:
      return DType::boolean;
    case Scalar::Char:
      return DType::int8;
    case Scalar::Byte:
      return DType::uint8;
    case Scalar::Int:
      return DType::int32;
    case Scalar::Long:
      return DType::int64;
    default:
      return DType::unsupported;
  }
}

// The inverse of dtype_of, for the types that the kernels compute in.
template <class Scalar>
inline Scalar scalar_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return Scalar::Float;
    case DType::float16:
      return Scalar::Half;
    case DType::bfloat16:
      return Scalar::BFloat16;
    default:
      return Scalar::Double;
  }
}

// `index` is the number of the GPU; it is ignored for other devices.
inline Device device_of(bool is_gpu, bool is_cpu, int index) {
  if (gpu::kModelled ? is_cpu : is_gpu) return {"cuda", gpu::kModelled ? 0 : index};
  return {is_cpu ? "cpu" : "another kind of device", -1};
}

// The view of a tensor. `device_index` is the number of its GPU.
template <class Tensor>
TensorView view_of(const Tensor& tensor, int device_index) {
  const auto sizes = tensor.sizes();
  const Device device = device_of(tensor.is_cuda(), tensor.is_cpu(), device_index);
  return {tensor.data_ptr(),
          dtype_of(tensor.scalar_type()),
          sizes.data(),
          static_cast<std::int64_t>(sizes.size()),
          device,
          tensor.strides().data()};
}

// A torch function that is declared weak, because only a torch built for a GPU has it.
template <class Function>
Function* available(Function* function) {
  if (!function) {
    throw Error("fusedops: this torch has no products of matrices for the GPU to be called");
  }
  return function;
}

// torch's current stream on a GPU.
inline gpu::Stream current_stream_of(int index) {
  if (gpu::kModelled) return nullptr;
  if (!aoti_torch_get_current_cuda_stream) {
    throw Error("fusedops: this torch was built without GPU support, so it has no GPU stream");
  }
  gpu::Stream stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(index, &stream) != 0) {
    throw Error("fusedops: torch has no current stream for cuda:" + std::to_string(index));
  }
  return stream;
}

}  // namespace fusedops
