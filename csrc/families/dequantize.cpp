// dequantize.
#include "families/dequantize.h"

#include "families/api.h"

namespace fusedops {

struct DequantizeOps {
  static Tensor dequantize(const Tensor& weight, const Tensor& scale, DType dtype) {
    const TensorView& view = weight.view();
    const bool packed = view.dtype == DType::uint8;
    require(is_up_to_32_bits(dtype) && (packed || view.dtype == DType::int8) && view.dim == 2 &&
            is_scale(scale, weight));
    check_on_gpu("weight", weight);
    const Tensor in = on_16_bytes(weight), by = contiguous(scale);
    const std::int64_t rows = view.sizes[0], cols = view.sizes[1] * (packed ? 2 : 1);
    const Tensor result = empty(weight, {rows, cols}, dtype);
    const std::int64_t group = rows * cols / by.view().sizes[0];
    launch_dequantize({dtype, packed, rows * cols, group}, result.data(), in.data(), by.data(),
                      gpu_of(weight));
    return result;
  }
};

FUSEDOPS_FAMILY(dequantize, m) { m.op_without_out<&DequantizeOps::dequantize>("dequantize"); }

}  // namespace fusedops
