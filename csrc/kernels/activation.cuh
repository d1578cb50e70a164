// The activations as types: y = f(v) and its derivative, in the accumulator's arithmetic.
#pragma once

#include "kernels/gelu.h"
#include "kernels/vector.cuh"

namespace fusedops::activation {

struct Identity {
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    return v;
  }
};

struct Relu {
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
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> value(Accumulator<T> v) {
    return gelu::erf_form(v);
  }
  template <class T>
  FUSEDOPS_DEVICE static Accumulator<T> gradient(Accumulator<T> v, Accumulator<T> grad) {
    return grad * gelu::erf_form_slope(v);
  }
};

}  // namespace fusedops::activation
