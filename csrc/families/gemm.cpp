// Products of matrices with weights, and what is fused with them. Products of normalised rows are
// in gemm_norm.h, the products themselves in gemm_products.h.
#include "families/gemm_norm.h"

namespace fusedops {

struct Gemm : GemmNorm {
  static Tensor vector_matmul(const Tensor& x, const Tensor& weight) {
    return linear("vector_matmul", x, weight, nullptr, std::nullopt);
  }

  static Tensor vector_matmul_int8(const Tensor& x, const Tensor& weight, const Tensor& scale) {
    return linear("vector_matmul_int8", x, weight, &scale, std::nullopt);
  }

  static Tensor linear_layer(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    return linear("linear_layer", x, weight, nullptr, bias);
  }

  static Tensor linear_layer_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                  const OptionalTensor& bias) {
    return linear("linear_layer_int8", x, weight, &scale, bias);
  }

  static Tensor fused_gemm_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const Tensor& weight2) {
    return gemm_gelu("fused_gemm_gelu", x, weight, nullptr, bias, weight2, nullptr);
  }

  static Tensor fused_gemm_gelu_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                     const Tensor& bias, const Tensor& weight2,
                                     const Tensor& scale2) {
    return gemm_gelu("fused_gemm_gelu_int8", x, weight, &scale, bias, weight2, &scale2);
  }

  static Tensor einsum_sec_sm_ecm(const Tensor& q, const Tensor& weight) {
    constexpr const char* op = "einsum_sec_sm_ecm";
    const Argument in = named("q", q), by = named("weight", weight);
    const ops::Product call = ops::check_einsum(op, in, by);
    check_on_gpu(op, in);
    const Tensor columns =
        torch().matrix(contiguous(q), transposed(matrix_of(call.inner, call.rows)));
    // Reading the transpose costs the BLAS library up to four times as much where its columns are
    // not whole vectors. Then a contiguous copy is faster.
    const bool vectors = call.rows * element_size(call.dtype) % kVectorBytes == 0;
    const Tensor transpose = vectors ? columns : contiguous(columns);
    const Tensor out =
        empty(transpose, {in.tensor.sizes[1], in.tensor.sizes[2], call.width}, call.dtype);
    if (vectors) {
      Products::multiply(call, out, transpose, weight, std::nullopt);
    } else {
      Products::product(op, call, out, transpose, {"weight", weight});
    }
    return out;
  }

 private:
  static Tensor linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor* scale,
                       const OptionalTensor& bias) {
    const Argument in = named("x", x);
    const Factor by("weight", weight, "scale", scale);
    const ops::Product call = ops::check_product(op, in, by.checked());
    if (bias) {
      ops::check_bias(op, named("bias", *bias), in, by.checked());
    }
    check_on_gpu(op, in);
    const Tensor out = empty(x, ops::sizes_like(in.tensor, call.width), call.dtype);
    Products::product(op, call, out, Products::matrix(call, x), by, bias);
    return out;
  }

  static Tensor gemm_gelu(const char* op, const Tensor& x, const Tensor& weight,
                          const Tensor* scale, const Tensor& bias, const Tensor& weight2,
                          const Tensor* scale2) {
    const Argument in = named("x", x);
    const Factor up("weight", weight, "scale", scale), down("weight2", weight2, "scale2", scale2);
    const ops::Product first = ops::check_product(op, in, up.checked(), {Activation::gelu_tanh});
    ops::check_bias(op, named("bias", bias), in, up.checked());
    const ops::Product second = ops::check_next(op, first, in, down.checked(), up.checked());
    check_on_gpu(op, in);
    const Tensor out = empty(x, ops::sizes_like(in.tensor, second.width), second.dtype);
    Products::both(op, first, second, out, Products::matrix(first, x), up, bias, down);
    return out;
  }
};

FUSEDOPS_FAMILY(gemm, m) {
  m.op<&Gemm::vector_matmul>("vector_matmul");
  m.op<&Gemm::linear_layer>("linear_layer");
  m.op<&Gemm::fused_gemm_gelu>("fused_gemm_gelu");
  m.op<&Gemm::einsum_sec_sm_ecm>("einsum_sec_sm_ecm");
  m.op<&Gemm::qkv_gemm>("qkv_gemm");
  m.op<&Gemm::rms_qkv_gemm>("rms_qkv_gemm");
  m.op<&Gemm::mlp_gemm>("mlp_gemm");
  m.op<&Gemm::rms_mlp_gemm>("rms_mlp_gemm");
  m.op<&Gemm::vector_matmul_int8>("vector_matmul_int8");
  m.op<&Gemm::linear_layer_int8>("linear_layer_int8");
  m.op<&Gemm::fused_gemm_gelu_int8>("fused_gemm_gelu_int8");
  m.op<&Gemm::qkv_gemm_int8>("qkv_gemm_int8");
  m.op<&Gemm::rms_qkv_gemm_int8>("rms_qkv_gemm_int8");
  m.op<&Gemm::mlp_gemm_int8>("mlp_gemm_int8");
  m.op<&Gemm::rms_mlp_gemm_int8>("rms_mlp_gemm_int8");
}

}  // namespace fusedops
