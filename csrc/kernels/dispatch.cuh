// From a dtype known at run time to a type known at compile time.
#pragma once

#include "kernels/vector.cuh"

namespace fusedops {

template <class Type>
struct TypeTag {
  using T = Type;
};

// Calls `body` with the tag of the element type.
template <class Body>
gpu::Status with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::float32:
      return body(TypeTag<float>{});
    case DType::float16:
      return body(TypeTag<half>{});
    case DType::bfloat16:
      return body(TypeTag<bfloat16>{});
    case DType::float64:
      return body(TypeTag<double>{});
    case DType::unsupported:
      break;
  }
  return gpu::kInvalidValue;
}

}  // namespace fusedops
