// Operators that normalise rows and multiply them by weights: the attention block's qkv product and
// the MLP.
#pragma once

#include <string>
#include <tuple>

#include "families/gemm_products.h"
#include "ops/norm.h"

namespace fusedops {

struct GemmNorm {
  using Pair = std::tuple<Tensor, Tensor>;

  static Pair qkv_gemm(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                       const Tensor& gamma, const Tensor& beta, double eps) {
    return qkv("qkv_gemm", x, {"weight", weight}, bias, gamma, beta, eps);
  }

  static Pair qkv_gemm_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                            const OptionalTensor& bias, const Tensor& gamma, const Tensor& beta,
                            double eps) {
    return qkv("qkv_gemm_int8", x, {"weight", weight, "scale", &scale}, bias, gamma, beta, eps);
  }

  static Pair rms_qkv_gemm(const Tensor& x, const Tensor& weight, const Tensor& gamma, double eps) {
    return qkv("rms_qkv_gemm", x, {"weight", weight}, {}, gamma, {}, eps);
  }

  static Pair rms_qkv_gemm_int8(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                const Tensor& gamma, double eps) {
    return qkv("rms_qkv_gemm_int8", x, {"weight", weight, "scale", &scale}, {}, gamma, {}, eps);
  }

  // pre_ln names the kind of model. The result does not depend on it.
  static Pair mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                       const Tensor& weight, const Tensor& bias, const Tensor& weight2,
                       const Tensor& gamma, const Tensor& beta, double eps, bool /*pre_ln*/,
                       bool mlp_after_attn, const std::string& activation) {
    return mlp("mlp_gemm", x, residual, input_bias, {"weight", weight}, bias, {"weight2", weight2},
               gamma, beta, eps, mlp_after_attn, activation);
  }

  static Pair mlp_gemm_int8(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                            const Tensor& weight, const Tensor& scale, const Tensor& bias,
                            const Tensor& weight2, const Tensor& scale2, const Tensor& gamma,
                            const Tensor& beta, double eps, bool /*pre_ln*/, bool mlp_after_attn,
                            const std::string& activation) {
    return mlp("mlp_gemm_int8", x, residual, input_bias, {"weight", weight, "scale", &scale}, bias,
               {"weight2", weight2, "scale2", &scale2}, gamma, beta, eps, mlp_after_attn,
               activation);
  }

  static Tensor rms_mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             const Tensor& weight2, const Tensor& gamma, double eps,
                             const std::string& activation) {
    return rms_mlp("rms_mlp_gemm", x, residual, {"weight", weight}, {"weight2", weight2}, gamma,
                   eps, activation);
  }

  static Tensor rms_mlp_gemm_int8(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                  const Tensor& scale, const Tensor& weight2, const Tensor& scale2,
                                  const Tensor& gamma, double eps, const std::string& activation) {
    return rms_mlp("rms_mlp_gemm_int8", x, residual, {"weight", weight, "scale", &scale},
                   {"weight2", weight2, "scale2", &scale2}, gamma, eps, activation);
  }

 private:
  static Pair qkv(const char* op, const Tensor& x, const Factor& weight, const OptionalTensor& bias,
                  const Tensor& gamma, const OptionalTensor& beta, double eps) {
    const Argument in = named("x", x), scale = named("gamma", gamma);
    const NamedIf shift("beta", beta), row("bias", bias);
    const auto norm = ops::check_norm(op, in, {nullptr, nullptr, &scale, shift.get()}, eps);
    const ops::Product call = ops::check_product(op, in, weight.checked());
    if (bias) ops::check_bias(op, *row.get(), in, weight.checked());
    check_on_gpu(op, in);
    const Tensor from = on_16_bytes(x);
    const Tensor y = empty(from, ops::sizes_like(in.tensor, call.width), call.dtype);
    const Tensor u = empty_like(from);
    normed(op, norm, u, from, {}, {}, gamma, beta, nullptr);
    Products::product(op, call, y, Products::matrix(call, u), weight, bias);
    return {y, u};
  }

  static Pair mlp(const char* op, const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                  const Factor& up, const Tensor& bias, const Factor& down, const Tensor& gamma,
                  const Tensor& beta, double eps, bool mlp_after_attn,
                  const std::string& activation) {
    const ops::Follow follow = ops::following(op, activation);
    const Argument in = named("x", x), more = named("residual", residual),
                   row = named("input_bias", input_bias);
    const Argument scale = named("gamma", gamma), shift = named("beta", beta);
    const auto norm = ops::check_norm(op, in, {&row, &more, &scale, &shift}, eps);
    const ops::Product first = ops::check_product(op, in, up.checked(), follow);
    ops::check_bias(op, named("bias", bias), in, up.checked());
    const ops::Product second = ops::check_next(op, first, in, down.checked(), up.checked());
    check_on_gpu(op, in);
    const Tensor from = on_16_bytes(residual);
    const Tensor y = empty(from, ops::sizes_like(in.tensor, second.width), second.dtype);
    const Tensor u = empty_like(from);
    if (mlp_after_attn) {
      normed(op, norm, u, on_16_bytes(x), input_bias, from, gamma, beta, nullptr);
    } else {
      normed(op, norm, u, from, {}, {}, gamma, beta, nullptr);
    }
    Products::both(op, first, second, y, Products::matrix(first, u), up, bias, down);
    return {y, u};
  }

  static Tensor rms_mlp(const char* op, const Tensor& x, const Tensor& residual, const Factor& up,
                        const Factor& down, const Tensor& gamma, double eps,
                        const std::string& activation) {
    const ops::Follow follow = ops::following(op, activation);
    const Argument in = named("x", x), more = named("residual", residual),
                   scale = named("gamma", gamma);
    const auto norm = ops::check_norm(op, in, {nullptr, &more, &scale, nullptr}, eps);
    const ops::Product first = ops::check_product(op, in, up.checked(), follow);
    const ops::Product second = ops::check_next(op, first, in, down.checked(), up.checked());
    check_on_gpu(op, in);
    const Tensor sum = on_16_bytes(residual);
    const Tensor y = empty(sum, ops::sizes_like(in.tensor, second.width), second.dtype);
    const Tensor u = temporary(sum, ops::sizes_like(in.tensor, first.inner), first.dtype);
    normed(op, norm, u, on_16_bytes(x), {}, sum, gamma, {}, sum.data());
    if (sum.data() != more.tensor.data) torch().copy(residual, sum);
    Products::both(op, first, second, y, Products::matrix(first, u), up, {}, down);
    return y;
  }

  // The norm of x [+ bias + residual], in u. The sum is stored in `sum` unless that is null. x and
  // residual are contiguous and start on 16 bytes.
  static void normed(const char* op, const kernels::Norm& call, const Tensor& u, const Tensor& x,
                     const OptionalTensor& bias, const OptionalTensor& residual,
                     const Tensor& gamma, const OptionalTensor& beta, void* sum) {
    const Tensor scale = on_16_bytes(gamma);
    const OptionalTensor row = on_16_bytes_if(bias), shift = on_16_bytes_if(beta);
    ops::norm(
        op, call,
        {x.data(), data_of(row), data_of(residual), scale.data(), data_of(shift), u.data(), sum},
        gpu_of(x.view()));
  }
};

}  // namespace fusedops
