// vector_add as torch sees it, written once over `Api` (api.h lists what an Api has).
#pragma once

#include "ops/vector_add.h"

namespace fusedops {

template <class Api>
struct VectorAdd {
  using Tensor = typename Api::Tensor;

  static Tensor vector_add(const Tensor& a, const Tensor& b, double gamma) {
    constexpr const char* op = "vector_add";
    const TensorView view = Api::view(a);
    ops::check_vector_add(op, view, Api::view(b));
    const typename Api::Guard guard(view.device.index);
    const Tensor left = Api::contiguous(a), right = Api::contiguous(b);
    Tensor out = Api::empty_like(left);
    ops::vector_add(op, view, gamma, Api::data(out), Api::data(left), Api::data(right),
                    Api::stream(view.device.index));
    return out;
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&VectorAdd::vector_add>("vector_add");
  }
};

}  // namespace fusedops
