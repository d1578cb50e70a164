// The binding of the matrix products with weights and of what is fused with them. Products of
// normalised rows are in gemm_norm.h, the products themselves in gemm_products.h.
#include "torch/families/gemm_norm.h"

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
    const Named in("q", q), by("weight", weight);
    const ops::Product call = ops::check_einsum(op, in.argument, by.argument);
    check_on_gpu(op, in.argument);
    const Api::Guard guard(in.view.device.index);
    const Tensor columns =
        Blas::matrix(Api::contiguous(q), transposed(matrix_of(call.inner, call.rows)));
    // Reading the transpose costs the BLAS library up to four times as much where its columns are
    // not whole vectors. Then a contiguous copy is faster.
    const bool vectors = call.rows * element_size(call.dtype) % kVectorBytes == 0;
    const Tensor transpose = vectors ? columns : Api::contiguous(columns);
    const Tensor out =
        Api::empty(transpose, {in.view.sizes[1], in.view.sizes[2], call.width}, call.dtype);
    Products::multiply(call, out, transpose, weight, std::nullopt);
    return out;
  }

 private:
  static Tensor linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor* scale,
                       const OptionalTensor& bias) {
    const Named in("x", x);
    const Factor by("weight", weight, "scale", scale);
    const ops::Product call = ops::check_product(op, in.argument, by.checked());
    if (bias) {
      ops::check_bias(op, Named("bias", *bias).argument, in.argument, by.checked());
    }
    check_on_gpu(op, in.argument);
    const Api::Guard guard(in.view.device.index);
    const Tensor out = Api::empty(x, ops::sizes_like(in.view, call.width), call.dtype);
    Products::product(op, call, out, Products::matrix(call, x), by, bias);
    return out;
  }

  static Tensor gemm_gelu(const char* op, const Tensor& x, const Tensor& weight,
                          const Tensor* scale, const Tensor& bias, const Tensor& weight2,
                          const Tensor* scale2) {
    const Named in("x", x);
    const Factor up("weight", weight, "scale", scale), down("weight2", weight2, "scale2", scale2);
    const ops::Product first =
        ops::check_product(op, in.argument, up.checked(), {Activation::gelu_tanh});
    ops::check_bias(op, Named("bias", bias).argument, in.argument, up.checked());
    const ops::Product second =
        ops::check_next(op, first, in.argument, down.checked(), up.checked());
    check_on_gpu(op, in.argument);
    const Api::Guard guard(in.view.device.index);
    const Tensor out = Api::empty(x, ops::sizes_like(in.view, second.width), second.dtype);
    Products::both(op, first, second, out, Products::matrix(first, x), up, bias, down);
    return out;
  }
};

FUSEDOPS_FAMILY(gemm, m) {
  FUSEDOPS_OPERATOR(m, "vector_matmul", &Gemm::vector_matmul);
  FUSEDOPS_OPERATOR(m, "linear_layer", &Gemm::linear_layer);
  FUSEDOPS_OPERATOR(m, "fused_gemm_gelu", &Gemm::fused_gemm_gelu);
  FUSEDOPS_OPERATOR(m, "einsum_sec_sm_ecm", &Gemm::einsum_sec_sm_ecm);
  FUSEDOPS_OPERATOR(m, "qkv_gemm", &Gemm::qkv_gemm);
  FUSEDOPS_OPERATOR(m, "rms_qkv_gemm", &Gemm::rms_qkv_gemm);
  FUSEDOPS_OPERATOR(m, "mlp_gemm", &Gemm::mlp_gemm);
  FUSEDOPS_OPERATOR(m, "rms_mlp_gemm", &Gemm::rms_mlp_gemm);
  FUSEDOPS_OPERATOR(m, "vector_matmul_int8", &Gemm::vector_matmul_int8);
  FUSEDOPS_OPERATOR(m, "linear_layer_int8", &Gemm::linear_layer_int8);
  FUSEDOPS_OPERATOR(m, "fused_gemm_gelu_int8", &Gemm::fused_gemm_gelu_int8);
  FUSEDOPS_OPERATOR(m, "qkv_gemm_int8", &Gemm::qkv_gemm_int8);
  FUSEDOPS_OPERATOR(m, "rms_qkv_gemm_int8", &Gemm::rms_qkv_gemm_int8);
  FUSEDOPS_OPERATOR(m, "mlp_gemm_int8", &Gemm::mlp_gemm_int8);
  FUSEDOPS_OPERATOR(m, "rms_mlp_gemm_int8", &Gemm::rms_mlp_gemm_int8);
}

}  // namespace fusedops
