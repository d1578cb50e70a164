// Operators that normalise rows and multiply them by weights: the attention block's qkv product,
// the MLP, and a product of a decode step.
#include <string>
#include <tuple>

#include "families/gemm_products.h"
#include "families/norm.h"
#include "kernels/gemm_decode.h"

namespace fusedops {

struct GemmNormOps {
  using Pair = std::tuple<Tensor, Tensor>;

  static Pair qkv_gemm(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                       const Tensor& gamma, const Tensor& beta, double eps) {
    return qkv(x, {weight}, bias, gamma, beta, eps);
  }

  static Pair qkv_gemm_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                            const OptionalTensor& bias, const Tensor& gamma, const Tensor& beta,
                            double eps) {
    return qkv(x, {weight, &scale}, bias, gamma, beta, eps);
  }

  static Pair rms_qkv_gemm(const Tensor& x, const Tensor& weight, const Tensor& gamma, double eps) {
    return qkv(x, {weight}, {}, gamma, {}, eps);
  }

  static Pair rms_qkv_gemm_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                const Tensor& gamma, double eps) {
    return qkv(x, {weight, &scale}, {}, gamma, {}, eps);
  }

  // pre_ln names the kind of model. The result does not depend on it.
  static Pair mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                       const Tensor& weight, const Tensor& bias, const Tensor& weight2,
                       const Tensor& gamma, const Tensor& beta, double eps, bool /*pre_ln*/,
                       bool mlp_after_attn, const std::string& activation) {
    return mlp(x, residual, input_bias, {weight}, bias, {weight2}, gamma, beta, eps, mlp_after_attn,
               activation);
  }

  static Pair mlp_gemm_int8(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                            const Tensor& weight, const Tensor& scale, const Tensor& bias,
                            const Tensor& weight2, const Tensor& scale2, const Tensor& gamma,
                            const Tensor& beta, double eps, bool /*pre_ln*/, bool mlp_after_attn,
                            const std::string& activation) {
    return mlp(x, residual, input_bias, {weight, &scale}, bias, {weight2, &scale2}, gamma, beta,
               eps, mlp_after_attn, activation);
  }

  static Tensor rms_mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             const Tensor& weight2, const Tensor& gamma, double eps,
                             const std::string& activation) {
    return rms_mlp(x, residual, {weight}, {weight2}, gamma, eps, activation);
  }

  static Tensor rms_mlp_gemm_int8(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                  const Tensor& scale, const Tensor& weight2, const Tensor& scale2,
                                  const Tensor& gamma, double eps, const std::string& activation) {
    return rms_mlp(x, residual, {weight, &scale}, {weight2, &scale2}, gamma, eps, activation);
  }

  static Tensor decode_gemm(const Tensor& x, const Tensor& weight, const OptionalTensor& gamma,
                            const OptionalTensor& residual, double eps,
                            const std::string& activation, bool constant) {
    const Follow follow = activation == "none" ? Follow{} : following(activation);
    const Product call = checked_product(x, {weight}, follow);
    const std::vector<std::int64_t> sizes = sizes_with(x, call.cols());
    require(is_row_of_if(gamma, x) &&
            (!residual || (activation == "none" && is_like(*residual, x) &&
                           same_shape(*residual, shaped_like(x, sizes, call.dtype)))));
    check_on_gpu("x", x);
    const Tensor from = on_16_bytes(x);
    const Tensor y = empty(from, sizes, call.dtype);
    if (try_decode(call, y, from, weight, gamma, residual, eps, constant)) return y;
    Tensor u = from;
    if (gamma) {
      u = temporary(from, sizes_with(x, call.inner), call.dtype);
      normalise(u, from, {}, {}, *gamma, {}, eps, nullptr);
    }
    if (residual) {
      add_product(call, y, u, weight, *residual);
    } else {
      run_product(call, y, as_rows(call, u), {weight});
    }
    return y;
  }

 private:
  // Runs the kernel of a decode step if it supports the call and is faster; returns whether it did.
  // `x` is contiguous and starts on 16 bytes.
  static bool try_decode(const Product& call, const Tensor& y, const Tensor& x,
                         const Tensor& weight, const OptionalTensor& gamma,
                         const OptionalTensor& residual, double eps, bool constant) {
    const std::int64_t* const strides = weight.view().strides;
    if (strides[0] != 1) return false;
    const OptionalTensor scale = on_16_bytes_if(gamma), before = contiguous_if(residual);
    const kernels::GemmDecodeTensors tensors{y.data(), x.data(), weight.data(), data_of(scale),
                                             data_of(before)};
    const kernels::GemmDecode gemm{call.dtype,        call.follow.activation,
                                   call.follow.gated, call.rows,
                                   call.inner,        call.cols(),
                                   strides[1],        eps,
                                   constant};
    const Gpu on = gpu_of(x);
    if (!FUSEDOPS_KERNEL(on, gemm_decode_takes)(gemm, tensors)) return false;
    check_launch(on, FUSEDOPS_KERNEL(on, gemm_decode)(gemm, tensors, on.stream));
    return true;
  }

  static Pair qkv(const Tensor& x, const Factor& weight, const OptionalTensor& bias,
                  const Tensor& gamma, const OptionalTensor& beta, double eps) {
    const Product call = checked_product(x, weight);
    require(is_row_of(gamma, x) && is_row_of_if(beta, x) &&
            (!bias || is_row(*bias, x, call.width)));
    check_on_gpu("x", x);
    const Tensor from = on_16_bytes(x);
    const Tensor y = empty(from, sizes_with(x, call.width), call.dtype);
    const Tensor u = empty_like(from);
    normalise(u, from, {}, {}, gamma, beta, eps, nullptr);
    run_product(call, y, as_rows(call, u), weight, bias);
    return {y, u};
  }

  static Pair mlp(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                  const Factor& up, const Tensor& bias, const Factor& down, const Tensor& gamma,
                  const Tensor& beta, double eps, bool mlp_after_attn,
                  const std::string& activation) {
    const Product first = checked_product(x, up, following(activation));
    const Product second = checked_next(first, x, down);
    require(is_row_of(input_bias, x) && is_alike(residual, x) && is_row_of(gamma, x) &&
            is_row_of(beta, x) && is_row(bias, x, first.width));
    check_on_gpu("x", x);
    const Tensor from = on_16_bytes(residual);
    const Tensor y = empty(from, sizes_with(x, second.width), second.dtype);
    const Tensor u = empty_like(from);
    if (mlp_after_attn) {
      normalise(u, on_16_bytes(x), input_bias, from, gamma, beta, eps, nullptr);
    } else {
      normalise(u, from, {}, {}, gamma, beta, eps, nullptr);
    }
    run_both(first, second, y, as_rows(first, u), up, bias, down);
    return {y, u};
  }

  static Tensor rms_mlp(const Tensor& x, const Tensor& residual, const Factor& up,
                        const Factor& down, const Tensor& gamma, double eps,
                        const std::string& activation) {
    const Product first = checked_product(x, up, following(activation));
    const Product second = checked_next(first, x, down);
    require(is_alike(residual, x) && is_row_of(gamma, x));
    check_on_gpu("x", x);
    torch();  // refuses before the residual is written: the product may be torch's alone
    const Tensor sum = on_16_bytes(residual);
    const Tensor y = empty(sum, sizes_with(x, second.width), second.dtype);
    const Tensor u = temporary(sum, sizes_with(x, first.inner), first.dtype);
    normalise(u, on_16_bytes(x), {}, sum, gamma, {}, eps, sum.data());
    if (sum.data() != residual.data()) torch().copy(residual, sum);
    run_both(first, second, y, as_rows(first, u), up, {}, down);
    return y;
  }

  // The norm of x [+ bias + residual], in u. The sum is stored in `sum` unless that is null. x and
  // residual are contiguous and start on 16 bytes.
  static void normalise(const Tensor& u, const Tensor& x, const OptionalTensor& bias,
                        const OptionalTensor& residual, const Tensor& gamma,
                        const OptionalTensor& beta, double eps, void* sum) {
    const Tensor scale = on_16_bytes(gamma);
    const OptionalTensor row = on_16_bytes_if(bias), shift = on_16_bytes_if(beta);
    launch_norm(
        norm_of(x, beta.has_value(), eps), x,
        {x.data(), data_of(row), data_of(residual), scale.data(), data_of(shift), u.data(), sum},
        gpu_of(x));
  }
};

FUSEDOPS_FAMILY(gemm, m) {
  m.op<&GemmNormOps::qkv_gemm>("qkv_gemm");
  m.op<&GemmNormOps::rms_qkv_gemm>("rms_qkv_gemm");
  m.op<&GemmNormOps::mlp_gemm>("mlp_gemm");
  m.op<&GemmNormOps::rms_mlp_gemm>("rms_mlp_gemm");
  m.op<&GemmNormOps::decode_gemm>("decode_gemm");
  m.op<&GemmNormOps::qkv_gemm_int8>("qkv_gemm_int8");
  m.op<&GemmNormOps::rms_qkv_gemm_int8>("rms_qkv_gemm_int8");
  m.op<&GemmNormOps::mlp_gemm_int8>("mlp_gemm_int8");
  m.op<&GemmNormOps::rms_mlp_gemm_int8>("rms_mlp_gemm_int8");
}

}  // namespace fusedops
