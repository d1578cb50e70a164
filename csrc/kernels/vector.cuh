// Element types and aligned vectors of 16 bytes: the choice of a type at run time, conversion to
// and from the arithmetic type, loads and stores.
#pragma once

#include <type_traits>

#include "kernels/types.h"
#include "platform/gpu.h"
#include "platform/math.h"

namespace fusedops {

using gpu::bfloat16;
using gpu::half;

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct alignas(kVectorBytes) Vector {
  T lane[kLanes<T>];
};

template <class T>
__device__ __forceinline__ Accumulator<T> widen(T value) {
  if constexpr (std::is_same_v<T, half>) {
    return __half2float(value);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return __bfloat162float(value);
  } else {
    return value;
  }
}

// bfloat16 is the upper half of a float32, so each element of a pair takes one instruction.
template <class T>
__device__ __forceinline__ void widen(Accumulator<T> (&out)[kLanes<T>], const Vector<T>& in) {
  if constexpr (std::is_same_v<T, bfloat16>) {
#pragma unroll
    for (int i = 0; i < kLanes<T>; i += 2) {
      unsigned pair;
      memcpy(&pair, &in.lane[i], sizeof(pair));
      out[i] = math::from_bits(pair << 16);
      out[i + 1] = math::from_bits(pair & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) out[i] = widen(in.lane[i]);
  }
}

template <class T>
__device__ __forceinline__ T narrow(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return __float2bfloat16(value);
  } else {
    return value;
  }
}

// One instruction rounds a pair to two 16-bit values.
template <class T>
__device__ __forceinline__ Vector<T> narrow(const Accumulator<T> (&values)[kLanes<T>]) {
  Vector<T> out;
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kLanes<T>; i += 2) {
      const float2 wide = make_float2(values[i], values[i + 1]);
      std::conditional_t<std::is_same_v<T, half>, __half2, gpu::bfloat162> pair;
      if constexpr (std::is_same_v<T, half>) {
        pair = __float22half2_rn(wide);
      } else {
        pair = __float22bfloat162_rn(wide);
      }
      memcpy(&out.lane[i], &pair, sizeof(pair));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) out.lane[i] = values[i];
  }
  return out;
}

template <class T>
__device__ __forceinline__ Vector<T> load(const T* __restrict__ data) {
  return *reinterpret_cast<const Vector<T>*>(data);
}

// For memory that the kernel does not write: the compiler may move such a load past its stores.
template <class T>
__device__ __forceinline__ Vector<T> load_read_only(const T* data) {
  const uint4 bits = __ldg(reinterpret_cast<const uint4*>(data));
  Vector<T> vector;
  memcpy(&vector, &bits, sizeof(vector));
  return vector;
}

template <class T>
__device__ __forceinline__ uint4 bits_of(const Vector<T>& vector) {
  uint4 bits;
  memcpy(&bits, &vector, sizeof(bits));
  return bits;
}

// One store; an assignment of the lanes may become several.
template <class T>
__device__ __forceinline__ void store(T* __restrict__ data, const Vector<T>& vector) {
  *reinterpret_cast<uint4*>(data) = bits_of(vector);
}

template <class Type>
struct TypeTag {
  using T = Type;
};

// Calls `body` with the tag of the element type, a TypeTag. It returns a status, and nothing that
// would lose bits as one.
template <class Body>
gpu::Status with_type(DType dtype, const Body& body) {
  static_assert(std::is_same_v<decltype(body(TypeTag<float>{})), gpu::Status>);
  switch (dtype) {
    case DType::float32:
      return body(TypeTag<float>{});
    case DType::float16:
      return body(TypeTag<half>{});
    case DType::bfloat16:
      return body(TypeTag<bfloat16>{});
    case DType::float64:
      return body(TypeTag<double>{});
    default:
      break;
  }
  return gpu::kInvalidValue;
}

template <int kBytes>
struct alignas(kBytes) Granule {
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  using Bits = std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>;
  Bits word[kBytes / sizeof(Bits)];
};

}  // namespace fusedops
