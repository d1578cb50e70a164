// The binding of add_padding and pad_transform.
#include "ops/layout.h"

#include "torch/api.h"

namespace fusedops {

struct Layout {
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

 private:
  template <class Plan>
  static Tensor padded(const char* op, const Tensor& x, const Plan& plan) {
    const TensorView view = Api::view(x);
    const Api::Guard guard(view.device.index);
    auto padding = plan(view);
    const Tensor in = padding ? x : Api::contiguous(x);
    if (!padding) padding = plan(Api::view(in));
    const Tensor result = Api::empty(x, padding->sizes, view.dtype);
    ops::pad_heads(op, *padding, Api::data(result), Api::data(in), gpu_of(view));
    return result;
  }
};

FUSEDOPS_FAMILY(layout, m) {
  FUSEDOPS_OPERATOR(m, "add_padding", &Layout::add_padding);
  FUSEDOPS_OPERATOR(m, "pad_transform", &Layout::pad_transform);
}

}  // namespace fusedops
