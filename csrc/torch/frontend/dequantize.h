// dequantize as torch sees it, written once over `Api` (api.h lists what an Api has).
#pragma once

#include "ops/dequantize.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Dequantize {
  using Tensor = typename Api::Tensor;

  static Tensor dequantize(const Tensor& weight, const Tensor& scale, typename Api::Scalar dtype) {
    constexpr const char* op = "dequantize";
    const TensorView view = Api::view(weight), scale_view = Api::view(scale);
    const auto call = ops::check_dequantize(op, {"weight", view}, {"scale", scale_view},
                                            dtype_of(dtype), dtype_name_of(dtype));
    check_on_gpu(op, {"weight", view});
    const typename Api::Guard guard(view.device.index);
    const Tensor in = on_16_bytes<Api>(weight), by = Api::contiguous(scale);
    const Tensor result =
        Api::empty(weight, {view.sizes[0], ops::dequantized_cols(view, call)}, call.dtype);
    ops::dequantize(op, call, Api::data(result), Api::data(in), Api::data(by),
                    Api::stream(view.device.index));
    return result;
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Dequantize::dequantize>("dequantize");
  }
};

}  // namespace fusedops
