// The binding of dequantize.
#include "ops/dequantize.h"

#include "torch/api.h"

namespace fusedops {

struct Dequantize {
  static Tensor dequantize(const Tensor& weight, const Tensor& scale, Api::Scalar dtype) {
    constexpr const char* op = "dequantize";
    const TensorView view = Api::view(weight), scale_view = Api::view(scale);
    const auto call = ops::check_dequantize(op, {"weight", view}, {"scale", scale_view},
                                            dtype_of(dtype), dtype_name_of(dtype));
    check_on_gpu(op, {"weight", view});
    const Api::Guard guard(view.device.index);
    const Tensor in = on_16_bytes(weight), by = Api::contiguous(scale);
    const Tensor result =
        Api::empty(weight, {view.sizes[0], ops::dequantized_cols(view, call)}, call.dtype);
    ops::dequantize(op, call, Api::data(result), Api::data(in), Api::data(by), gpu_of(view));
    return result;
  }
};

FUSEDOPS_FAMILY(dequantize, m) { m.impl("dequantize", FUSEDOPS_BOX(&Dequantize::dequantize)); }

}  // namespace fusedops
