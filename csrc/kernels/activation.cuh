// The activations as types: y = f(v) and its derivative, in the accumulator's arithmetic. A kernel
// takes one that the compiler knows (Fixed), or one of several at run time (Among).
#pragma once

#include "kernels/gelu.h"
#include "kernels/logistic.h"
#include "kernels/vector.cuh"

namespace fusedops::activation {

struct Identity {
  static constexpr Activation kName = Activation::identity;

  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    return v;
  }
};

struct Relu {
  static constexpr Activation kName = Activation::relu;

  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    return v < 0 ? 0 : v;  // a NaN stays
  }
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> gradient(Accumulator<T> v, Accumulator<T> grad) {
    return v <= 0 ? 0 : grad;
  }
};

struct GeluTanh {
  static constexpr Activation kName = Activation::gelu_tanh;

  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    if constexpr (sizeof(T) == 2) {
      return gelu::tanh_form_fast(v);
    } else {
      return gelu::tanh_form(v);
    }
  }
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> gradient(Accumulator<T> v, Accumulator<T> grad) {
    return grad * gelu::tanh_form_slope(v);
  }
};

struct GeluErf {
  static constexpr Activation kName = Activation::gelu_erf;

  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    if constexpr (sizeof(T) == 2) {
      return gelu::erf_form_fast(v);
    } else {
      return gelu::erf_form(v);
    }
  }
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> gradient(Accumulator<T> v, Accumulator<T> grad) {
    if constexpr (sizeof(T) == 2) {
      return grad * gelu::erf_form_slope_fast(v);
    } else {
      return grad * gelu::erf_form_slope(v);
    }
  }
};

struct Silu {
  static constexpr Activation kName = Activation::silu;

  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    if constexpr (sizeof(T) == 2) {
      return silu::value_fast(v);
    } else {
      return silu::value(v);
    }
  }
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> gradient(Accumulator<T> v, Accumulator<T> grad) {
    return grad * silu::slope(v);
  }
};

// One activation, known to the compiler.
template <class Act>
struct Fixed {
  template <class Body>
  FUSEDOPS_DEVICE void with(const Body& body) const {
    body(Act{});
  }
};

// One of several activations, chosen at launch.
template <class... Acts>
struct Among {
  Activation which;

  // Calls `body` with the chosen activation, in a kernel that has all of them.
  template <class Body>
  FUSEDOPS_DEVICE void with(const Body& body) const {
    (void)((Acts::kName == which && (body(Acts{}), true)) || ...);
  }

  // Calls `body` with the tag of the chosen activation, to launch a kernel for it alone.
  template <class Body>
  gpu::Status fix(const Body& body) const {
    gpu::Status status = gpu::kInvalidValue;
    (void)((Acts::kName == which && (status = body(TypeTag<Acts>{}), true)) || ...);
    return status;
  }
};

}  // namespace fusedops::activation

namespace fusedops {

using Gates = activation::Among<activation::Relu, activation::GeluTanh, activation::GeluErf,
                                activation::Silu>;

}  // namespace fusedops
