// gated_activation as torch sees it, written once over `Api` (api.h lists what an Api has).
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ops/gated.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Gated {
  using Tensor = typename Api::Tensor;
  using Optional = std::optional<Tensor>;
  using Pair = std::tuple<Tensor, Tensor>;

  static Tensor gated_activation(const Tensor& x, const Optional& bias, const std::string& kind) {
    constexpr const char* op = "gated_activation";
    const TensorView view = Api::view(x);
    const auto call = ops::check_gated(op, ops::gate_of(op, kind), view, view_if<Api>(bias));
    const typename Api::Guard guard(view.device.index);
    const Tensor in = Api::contiguous(x);
    const Optional b = contiguous_if<Api>(bias);
    std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.dim);
    sizes.back() = call.cols;
    Tensor y = Api::empty(in, sizes, view.dtype);
    ops::gated(op, call, Api::data(y), Api::data(in), data_of<Api>(b),
               Api::stream(view.device.index));
    return y;
  }

  static Pair gated_activation_backward(const Tensor& grad, const Tensor& x, const Optional& bias,
                                        const std::string& kind) {
    constexpr const char* op = "gated_activation_backward";
    const TensorView view = Api::view(x);
    const auto call = ops::check_gated_backward(op, ops::gate_of(op, kind), Api::view(grad), view,
                                                view_if<Api>(bias));
    const typename Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes<Api>(grad), in = on_16_bytes<Api>(x);
    const Optional b = contiguous_if<Api>(bias);
    Tensor grad_x = Api::empty_like(in);
    Tensor grad_bias = Api::empty(in, {b ? 2 * call.cols : 0}, view.dtype);
    const Tensor scratch = Api::empty_bytes(in, b ? kernels::gated_backward_scratch(call) : 0);
    ops::gated_backward(op, call, Api::data(grad_x), Api::data(grad_bias), Api::data(g),
                        Api::data(in), data_of<Api>(b), Api::data(scratch),
                        Api::stream(view.device.index));
    return {grad_x, grad_bias};
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Gated::gated_activation>("gated_activation");
    m.template impl<&Gated::gated_activation_backward>("gated_activation_backward");
  }
};

}  // namespace fusedops
