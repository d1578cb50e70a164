// add_padding and pad_transform as torch sees them, written once over `Api` (api.h lists what an
// Api has).
#pragma once

#include "ops/layout.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Layout {
  using Tensor = typename Api::Tensor;

  static Tensor add_padding(const Tensor& x) {
    constexpr const char* op = "add_padding";
    ops::check_add_padding(op, Api::view(x));
    return padded(op, x, &ops::add_padding);
  }

  static Tensor pad_transform(const Tensor& x, std::int64_t heads) {
    constexpr const char* op = "pad_transform";
    ops::check_pad_transform(op, Api::view(x), heads);
    return padded(op, x,
                  [heads](const TensorView& view) { return ops::pad_transform(view, heads); });
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Layout::add_padding>("add_padding");
    m.template impl<&Layout::pad_transform>("pad_transform");
  }

 private:
  template <class Plan>
  static Tensor padded(const char* op, const Tensor& x, const Plan& plan) {
    const TensorView view = Api::view(x);
    const typename Api::Guard guard(view.device.index);
    auto found = plan(view);
    const Tensor in = found ? x : Api::contiguous(x);
    if (!found) found = plan(Api::view(in));
    const Tensor result = Api::empty(x, found->sizes, view.dtype);
    ops::pad_heads(op, *found, Api::data(result), Api::data(in), Api::stream(view.device.index));
    return result;
  }
};

}  // namespace fusedops
