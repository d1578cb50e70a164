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
    return Products::plain(call, {in.view.sizes[1], in.view.sizes[2], call.width}, transpose,
                           weight);
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
    return Products::product(op, call, ops::sizes_like(in.view, call.width),
                             Products::matrix(call, x), by, bias);
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
    return Products::both(op, first, second, in.view, Products::matrix(first, x), up, bias, down);
  }
};

FUSEDOPS_FAMILY(gemm, m) {
  m.impl("vector_matmul", FUSEDOPS_BOX(&Gemm::vector_matmul));
  m.impl("linear_layer", FUSEDOPS_BOX(&Gemm::linear_layer));
  m.impl("fused_gemm_gelu", FUSEDOPS_BOX(&Gemm::fused_gemm_gelu));
  m.impl("einsum_sec_sm_ecm", FUSEDOPS_BOX(&Gemm::einsum_sec_sm_ecm));
  m.impl("qkv_gemm", FUSEDOPS_BOX(&Gemm::qkv_gemm));
  m.impl("rms_qkv_gemm", FUSEDOPS_BOX(&Gemm::rms_qkv_gemm));
  m.impl("mlp_gemm", FUSEDOPS_BOX(&Gemm::mlp_gemm));
  m.impl("rms_mlp_gemm", FUSEDOPS_BOX(&Gemm::rms_mlp_gemm));
  m.impl("vector_matmul_int8", FUSEDOPS_BOX(&Gemm::vector_matmul_int8));
  m.impl("linear_layer_int8", FUSEDOPS_BOX(&Gemm::linear_layer_int8));
  m.impl("fused_gemm_gelu_int8", FUSEDOPS_BOX(&Gemm::fused_gemm_gelu_int8));
  m.impl("qkv_gemm_int8", FUSEDOPS_BOX(&Gemm::qkv_gemm_int8));
  m.impl("rms_qkv_gemm_int8", FUSEDOPS_BOX(&Gemm::rms_qkv_gemm_int8));
  m.impl("mlp_gemm_int8", FUSEDOPS_BOX(&Gemm::mlp_gemm_int8));
  m.impl("rms_mlp_gemm_int8", FUSEDOPS_BOX(&Gemm::rms_mlp_gemm_int8));
}

}  // namespace fusedops
