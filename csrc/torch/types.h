// torch's element types and tensors as the host side (ops/) sees them. The templates serve both of
// torch's C++ APIs: torch::stable and ATen.
#pragma once

#include "ops/tensor_view.h"

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
    default:
      return DType::unsupported;
  }
}

// The inverse of dtype_of, for the types that the kernels know.
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

// The name for an error message: Python's name of the types that people pass by mistake, torch's
// C++ name of the others.
template <class Scalar>
inline const char* dtype_name_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::Float:
      return "float32";
    case Scalar::Half:
      return "float16";
    case Scalar::BFloat16:
      return "bfloat16";
    case Scalar::Double:
      return "float64";
    case Scalar::Int:
      return "int32";
    case Scalar::Long:
      return "int64";
    case Scalar::Bool:
      return "bool";
    case Scalar::Char:
      return "int8";
    case Scalar::Byte:
      return "uint8";
    default:
      return toString(scalar);  // found by argument-dependent lookup
  }
}

// The view of a tensor. `device_index` is the number of its GPU; it is ignored for other devices.
template <class Tensor>
TensorView view_of(const Tensor& tensor, int device_index) {
  const auto sizes = tensor.sizes();
  const auto scalar = tensor.scalar_type();
  const Device device = tensor.is_cuda()
                            ? Device{"cuda", device_index}
                            : Device{tensor.is_cpu() ? "cpu" : "another kind of device", -1};
  return {tensor.data_ptr(),
          dtype_of(scalar),
          dtype_name_of(scalar),
          sizes.data(),
          static_cast<std::int64_t>(sizes.size()),
          device,
          tensor.strides().data()};
}

}  // namespace fusedops
