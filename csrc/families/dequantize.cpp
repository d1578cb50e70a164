// dequantize.
#include "ops/dequantize.h"

#include "families/api.h"

namespace fusedops {

struct Dequantize {
  static Tensor dequantize(const Tensor& weight, const Tensor& scale, const ElementType& dtype) {
    constexpr const char* op = "dequantize";
    const TensorView view = weight.view(), scale_view = scale.view();
    const auto call =
        ops::check_dequantize(op, {"weight", view}, {"scale", scale_view}, dtype.dtype, dtype.name);
    check_on_gpu(op, {"weight", view});
    const Tensor in = on_16_bytes(weight), by = contiguous(scale);
    const Tensor result =
        empty(weight, {view.sizes[0], ops::dequantized_cols(view, call)}, call.dtype);
    ops::dequantize(op, call, result.data(), in.data(), by.data(), gpu_of(view));
    return result;
  }
};

FUSEDOPS_FAMILY(dequantize, m) { m.op_without_out<&Dequantize::dequantize>("dequantize"); }

}  // namespace fusedops
