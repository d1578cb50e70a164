// Products of matrices with weights, and what is fused with them. Products of normalised rows are
// in gemm_norm.cpp, the products themselves in gemm_products.cpp.
#include "families/gemm_products.h"

namespace fusedops {

struct GemmOps {
  static Tensor vector_matmul(const Tensor& x, const Tensor& weight) {
    return linear(x, {weight}, std::nullopt);
  }

  static Tensor vector_matmul_int8(const Tensor& x, const Tensor& weight, const Tensor& scale) {
    return linear(x, {weight, &scale}, std::nullopt);
  }

  static Tensor linear_layer(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    return linear(x, {weight}, bias);
  }

  static Tensor linear_layer_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                  const OptionalTensor& bias) {
    return linear(x, {weight, &scale}, bias);
  }

  static Tensor fused_gemm_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const Tensor& weight2) {
    return gemm_gelu(x, {weight}, bias, {weight2});
  }

  static Tensor fused_gemm_gelu_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                     const Tensor& bias, const Tensor& weight2,
                                     const Tensor& scale2) {
    return gemm_gelu(x, {weight, &scale}, bias, {weight2, &scale2});
  }

  // The product of q's transpose [e c, s] and weight [s, m], for q [s, e, c].
  static Tensor einsum_sec_sm_ecm(const Tensor& q, const Tensor& weight) {
    const TensorView& view = q.view();
    require(is_floating(view) && view.dim == 3 && is_weight({weight}, view, view.sizes[0]));
    check_on_gpu("q", q);
    const std::int64_t* const s = view.sizes;
    const Product call{view.dtype, s[1] * s[2], s[0], cols_of(weight), 0, {}};
    const Tensor from = contiguous(q);
    const Tensor out = empty(from, {s[1], s[2], call.width}, call.dtype);
    // Reading the transpose costs the BLAS library up to four times as much where its columns are
    // not whole vectors. Then a contiguous copy is faster.
    const bool vectors = call.rows * element_size(call.dtype) % kVectorBytes == 0;
    if (vectors && try_blas(call, out, {from, true, call.rows}, weight)) return out;
    const Tensor columns =
        Call::current().framework().matrix(from, transposed(matrix_of(call.inner, call.rows)));
    run_product(call, out,
                vectors ? Rows{columns, true, call.rows} : as_rows(call, contiguous(columns)),
                {weight});
    return out;
  }

 private:
  static Tensor linear(const Tensor& x, const Factor& weight, const OptionalTensor& bias) {
    const Product call = checked_product(x, weight);
    require(!bias || is_row(*bias, x, call.width));
    check_on_gpu("x", x);
    const Tensor out = empty(x, sizes_with(x, call.width), call.dtype);
    run_product(call, out, as_rows(call, x), weight, bias);
    return out;
  }

  static Tensor gemm_gelu(const Tensor& x, const Factor& up, const Tensor& bias,
                          const Factor& down) {
    const Product first = checked_product(x, up, {Activation::gelu_tanh});
    require(is_row(bias, x, first.width));
    const Product second = checked_next(first, x, down);
    check_on_gpu("x", x);
    const Tensor out = empty(x, sizes_with(x, second.width), second.dtype);
    run_both(first, second, out, as_rows(first, x), up, bias, down);
    return out;
  }
};

FUSEDOPS_FAMILY(gemm, m) {
  m.op<&GemmOps::vector_matmul>("vector_matmul");
  m.op<&GemmOps::linear_layer>("linear_layer");
  m.op<&GemmOps::fused_gemm_gelu>("fused_gemm_gelu");
  m.op<&GemmOps::einsum_sec_sm_ecm>("einsum_sec_sm_ecm");
  m.op<&GemmOps::vector_matmul_int8>("vector_matmul_int8");
  m.op<&GemmOps::linear_layer_int8>("linear_layer_int8");
  m.op<&GemmOps::fused_gemm_gelu_int8>("fused_gemm_gelu_int8");
}

}  // namespace fusedops
