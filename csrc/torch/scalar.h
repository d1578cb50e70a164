// torch's element types, whichever of its APIs names them.
#pragma once

#include "kernels/types.h"

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

// The other way; of what the kernels know.
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

// Python's names for the types people pass by mistake; C++'s for the rest.
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
      return toString(scalar);  // torch's own, found in the namespace of the type
  }
}

}  // namespace fusedops
