// softmax as torch sees it, written once over `Api` (api.h lists what an Api has).
#pragma once

#include <optional>

#include "ops/softmax.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Softmax {
  using Tensor = typename Api::Tensor;
  using Optional = std::optional<Tensor>;

  static Tensor softmax(const Tensor& scores, const Optional& mask, const Optional& alibi,
                        bool causal, std::int64_t window, double scale, std::int64_t head_offset,
                        std::int64_t mp_size) {
    constexpr const char* op = "softmax";
    const ops::SoftmaxOptions options{causal, window, scale, head_offset, mp_size};
    const TensorView view = Api::view(scores);
    ops::check_softmax(op, view, view_if<Api>(mask), view_if<Api>(alibi), options);
    const typename Api::Guard guard(view.device.index);
    const Tensor in = on_16_bytes<Api>(scores);
    const Optional mask_in = readable(mask), alibi_in = readable(alibi);
    Tensor y = Api::empty_like(in);
    const auto call =
        ops::softmax_call(view, view_if<Api>(mask_in), view_if<Api>(alibi_in), options);
    const std::int64_t bytes = kernels::softmax_scratch(call);
    const Optional scratch = bytes > 0 ? Optional(Api::empty_bytes(in, bytes)) : std::nullopt;
    ops::softmax(op, call, Api::data(y), Api::data(in), data_of<Api>(scratch),
                 Api::stream(view.device.index));
    return y;
  }

  static Tensor softmax_backward(const Tensor& grad, const Tensor& y, double scale) {
    constexpr const char* op = "softmax_backward";
    const TensorView view = Api::view(grad);
    const auto call = ops::check_softmax_backward(op, view, Api::view(y), scale);
    const typename Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes<Api>(grad), in = on_16_bytes<Api>(y);
    Tensor grad_scores = Api::empty_like(g);
    ops::softmax_backward(op, call, Api::data(grad_scores), Api::data(g), Api::data(in),
                          Api::stream(view.device.index));
    return grad_scores;
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Softmax::softmax>("softmax");
    m.template impl<&Softmax::softmax_backward>("softmax_backward");
  }

 private:
  // Where it lies already, or a copy.
  static Optional readable(const Optional& beside) {
    if (!beside || ops::readable(Api::view(*beside))) return beside;
    return Api::contiguous(*beside);
  }
};

}  // namespace fusedops
