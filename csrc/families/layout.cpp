// add_padding and pad_transform.
#include "ops/layout.h"

#include "families/api.h"

namespace fusedops {

struct Layout {
  static Tensor add_padding(const Tensor& x) {
    constexpr const char* op = "add_padding";
    ops::check_add_padding(op, x.view());
    return padded(op, x, &ops::add_padding);
  }

  static Tensor pad_transform(const Tensor& x, std::int64_t heads) {
    constexpr const char* op = "pad_transform";
    ops::check_pad_transform(op, x.view(), heads);
    return padded(op, x,
                  [heads](const TensorView& view) { return ops::pad_transform(view, heads); });
  }

 private:
  template <class Plan>
  static Tensor padded(const char* op, const Tensor& x, const Plan& plan) {
    const TensorView& view = x.view();
    auto padding = plan(view);
    const Tensor in = padding ? x : contiguous(x);
    if (!padding) padding = plan(in.view());
    const Tensor result = empty(x, padding->sizes, view.dtype);
    ops::pad_heads(op, *padding, result.data(), in.data(), gpu_of(view));
    return result;
  }
};

FUSEDOPS_FAMILY(layout, m) {
  m.op<&Layout::add_padding>("add_padding");
  m.op<&Layout::pad_transform>("pad_transform");
}

}  // namespace fusedops
