// Products with weights, and what is fused with them, as torch sees them; written once over `Api`
// (api.h and blas.h list what it has).
#pragma once

#include "torch/frontend/gemm_norm.h"

namespace fusedops {

template <class Api>
struct Gemm : GemmNorm<Api> {
  using Tensor = typename Api::Tensor;
  using Optional = std::optional<Tensor>;

  static Tensor vector_matmul(const Tensor& x, const Tensor& weight) {
    return linear("vector_matmul", x, weight, nullptr, std::nullopt);
  }

  static Tensor vector_matmul_int8(const Tensor& x, const Tensor& weight, const Tensor& scale) {
    return linear("vector_matmul_int8", x, weight, &scale, std::nullopt);
  }

  static Tensor linear_layer(const Tensor& x, const Tensor& weight, const Optional& bias) {
    return linear("linear_layer", x, weight, nullptr, bias);
  }

  static Tensor linear_layer_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                  const Optional& bias) {
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
    const Named<Api> in("q", q), by("weight", weight);
    const ops::Product call = ops::check_einsum(op, in.argument, by.argument);
    check_on_gpu(op, in.argument);
    const typename Api::Guard guard(in.view.device.index);
    const Tensor columns =
        Api::matrix(Api::contiguous(q), transposed(matrix_of(call.inner, call.rows)));
    // Rows that lie side by side as columns cost the library up to four times as much where those
    // are no whole vectors: then they are laid out first.
    const bool vectors = call.rows * element_size(call.dtype) % kVectorBytes == 0;
    const Tensor turned = vectors ? columns : Api::contiguous(columns);
    return P::plain(call, {in.view.sizes[1], in.view.sizes[2], call.width}, turned, weight);
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Gemm::vector_matmul>("vector_matmul");
    m.template impl<&Gemm::linear_layer>("linear_layer");
    m.template impl<&Gemm::fused_gemm_gelu>("fused_gemm_gelu");
    m.template impl<&Gemm::einsum_sec_sm_ecm>("einsum_sec_sm_ecm");
    m.template impl<&Gemm::qkv_gemm>("qkv_gemm");
    m.template impl<&Gemm::rms_qkv_gemm>("rms_qkv_gemm");
    m.template impl<&Gemm::mlp_gemm>("mlp_gemm");
    m.template impl<&Gemm::rms_mlp_gemm>("rms_mlp_gemm");
    m.template impl<&Gemm::vector_matmul_int8>("vector_matmul_int8");
    m.template impl<&Gemm::linear_layer_int8>("linear_layer_int8");
    m.template impl<&Gemm::fused_gemm_gelu_int8>("fused_gemm_gelu_int8");
    m.template impl<&Gemm::qkv_gemm_int8>("qkv_gemm_int8");
    m.template impl<&Gemm::rms_qkv_gemm_int8>("rms_qkv_gemm_int8");
    m.template impl<&Gemm::mlp_gemm_int8>("mlp_gemm_int8");
    m.template impl<&Gemm::rms_mlp_gemm_int8>("rms_mlp_gemm_int8");
  }

 private:
  using Weight = Factor<Api>;
  using P = Products<Api>;

  static Tensor linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor* scale,
                       const Optional& bias) {
    const Named<Api> in("x", x);
    const Weight by("weight", weight, "scale", scale);
    const ops::Product call = ops::check_product(op, in.argument, by.checked());
    if (bias) {
      ops::check_bias(op, Named<Api>("bias", *bias).argument, in.argument, by.checked());
    }
    check_on_gpu(op, in.argument);
    const typename Api::Guard guard(in.view.device.index);
    return P::product(op, call, ops::sizes_like(in.view, call.width), P::matrix(call, x), by, bias);
  }

  static Tensor gemm_gelu(const char* op, const Tensor& x, const Tensor& weight,
                          const Tensor* scale, const Tensor& bias, const Tensor& weight2,
                          const Tensor* scale2) {
    const Named<Api> in("x", x);
    const Weight up("weight", weight, "scale", scale), down("weight2", weight2, "scale2", scale2);
    const ops::Product first =
        ops::check_product(op, in.argument, up.checked(), {Activation::gelu_tanh});
    ops::check_bias(op, Named<Api>("bias", bias).argument, in.argument, up.checked());
    const ops::Product second =
        ops::check_next(op, first, in.argument, down.checked(), up.checked());
    check_on_gpu(op, in.argument);
    const typename Api::Guard guard(in.view.device.index);
    return P::both(op, first, second, in.view, P::matrix(first, x), up, bias, down);
  }
};

}  // namespace fusedops
