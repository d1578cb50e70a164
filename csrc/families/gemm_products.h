// A product of matrices and the operation that follows it: by our skinny kernel, or by torch's BLAS
// and further kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "families/api.h"
#include "ops/bias_act.h"
#include "ops/dequantize.h"
#include "ops/gated.h"
#include "ops/gemm.h"

namespace fusedops {

// A weight, and its scales if it is an int8 weight.
struct Factor {
  Factor(const char* name, const Tensor& tensor_, const char* scale_name = nullptr,
         const Tensor* scale_ = nullptr)
      : tensor(tensor_), scale(scale_), weight_(named(name, tensor_)) {
    if (scale_) scale_argument_.emplace(named(scale_name, *scale_));
  }

  ops::Weight checked() const { return {weight_, scale_argument_ ? &*scale_argument_ : nullptr}; }

  const Tensor& tensor;
  const Tensor* const scale;

 private:
  const Argument weight_;
  std::optional<Argument> scale_argument_;
};

// torch, whose operators alone have products of matrices.
inline Torch& torch() { return static_cast<Torch&>(Call::current().framework()); }

struct Products {
  // x[..., K] as a matrix; a copy only where a view is impossible.
  static Tensor matrix(const ops::Product& call, const Tensor& x) {
    if (x.view().dim == 2 && !may_be_skinny(call)) return x;
    return as_matrix(contiguous(x), call.rows, call.inner);
  }

  // The product of a matrix and a weight, and of what follows it, in `out`.
  static void product(const char* op, const ops::Product& call, const Tensor& out, const Tensor& a,
                      const Factor& factor, const OptionalTensor& bias = std::nullopt) {
    if (may_be_skinny(call) && try_skinny(op, call, out, a, factor, bias)) return;
    by_blas(op, call, out, a, weight_of(op, call, factor), bias);
  }

  // The first product, multiplied by a second weight, in `out`.
  static void both(const char* op, const ops::Product& first, const ops::Product& second,
                   const Tensor& out, const Tensor& a, const Factor& up, const OptionalTensor& bias,
                   const Factor& down) {
    product(op, second, out, hidden(op, first, a, up, bias), down);
  }

  static void multiply(const ops::Product& call, const Tensor& out, const Tensor& a,
                       const Tensor& weight, const OptionalTensor& bias) {
    const Tensor rows = as_matrix(out, call.rows, call.width);
    if (bias) {
      torch().addmm(rows, *bias, a, weight);
    } else {
      torch().mm(rows, a, weight);
    }
  }

 private:
  static void by_blas(const char* op, const ops::Product& call, const Tensor& out, const Tensor& a,
                      const Tensor& weight, const OptionalTensor& bias) {
    if (call.follow.gated) {
      gated(op, call, out, a, weight, bias);
    } else if (call.follow.activation != Activation::identity) {
      activated(op, call, out, a, weight, bias);
    } else {
      multiply(call, out, a, weight, bias);
    }
  }

  static bool may_be_skinny(const ops::Product& call) {
    return call.rows <= kernels::kSkinnyRows && element_size(call.dtype) == 2;
  }

  static Tensor as_matrix(const Tensor& tensor, std::int64_t rows, std::int64_t cols) {
    return tensor.view().dim == 2 ? tensor : torch().matrix(tensor, matrix_of(rows, cols));
  }

  static bool try_skinny(const char* op, const ops::Product& call, const Tensor& out,
                         const Tensor& a, const Factor& factor, const OptionalTensor& bias) {
    const OptionalTensor b = contiguous_if(bias);
    OptionalTensor scales;
    if (factor.scale) scales = contiguous(*factor.scale);
    const kernels::GemmSkinnyTensors tensors{out.data(), a.data(), factor.tensor.data(), data_of(b),
                                             data_of(scales)};
    return ops::try_skinny_gemm(op, call, factor.tensor.view(), tensors, gpu_of(a.view()));
  }

  // The product that an MLP has between its weights, in a temporary.
  static Tensor hidden(const char* op, const ops::Product& call, const Tensor& a,
                       const Factor& factor, const OptionalTensor& bias) {
    OptionalTensor out;
    const auto make = [&] { out = temporary(a, {call.rows, call.cols()}, call.dtype); };
    if (may_be_skinny(call)) {
      make();
      if (try_skinny(op, call, *out, a, factor, bias)) return *out;
    }
    const Tensor weight = weight_of(op, call, factor);
    if (has_epilogue(call, a)) return epilogue(call, a, weight, bias);
    if (!out) make();
    by_blas(op, call, *out, a, weight, bias);
    return *out;
  }

  static Tensor weight_of(const char* op, const ops::Product& call, const Factor& factor) {
    return factor.scale ? dequantized(op, call, factor) : factor.tensor;
  }

  static Tensor dequantized(const char* op, const ops::Product& call, const Factor& factor) {
    const Tensor weight = on_16_bytes(factor.tensor);
    const Tensor scale = contiguous(*factor.scale);
    const std::int64_t elements = call.inner * call.width;
    Tensor out = temporary(weight, {call.inner, call.width}, call.dtype);
    ops::dequantize(op, {call.dtype, false, elements, elements / call.groups}, out.data(),
                    weight.data(), scale.data(), gpu_of(weight.view()));
    return out;
  }

  static Tensor zeros(const Tensor& like, std::int64_t count, DType dtype) {
    Tensor made = temporary(like, {count}, dtype);
    torch().zero(made);
    return made;
  }

  static Tensor bias_of(const ops::Product& call, const Tensor& a, const OptionalTensor& bias) {
    return bias ? contiguous(*bias) : zeros(a, call.width, call.dtype);
  }

  static Tensor epilogue(const ops::Product& call, const Tensor& a, const Tensor& weight,
                         const OptionalTensor& bias) {
    return torch().addmm_activation(bias_of(call, a, bias), a, weight,
                                    call.follow.activation == Activation::gelu_tanh);
  }

  static void activated(const char* op, const ops::Product& call, const Tensor& out,
                        const Tensor& a, const Tensor& weight, const OptionalTensor& bias) {
    const Tensor v = temporary(a, {call.rows, call.width}, call.dtype);
    multiply(call, v, a, weight, std::nullopt);
    const Tensor b = bias_of(call, a, bias);
    ops::bias_act(op, {call.dtype, call.follow.activation, call.rows, call.width}, out.data(),
                  v.data(), b.data(), gpu_of(a.view()));
  }

  static void gated(const char* op, const ops::Product& call, const Tensor& out, const Tensor& a,
                    const Tensor& weight, const OptionalTensor& bias) {
    const Tensor v = temporary(a, {call.rows, call.width}, call.dtype);
    multiply(call, v, a, weight, std::nullopt);
    const OptionalTensor b = contiguous_if(bias);
    ops::gated(op, {call.dtype, call.follow.activation, call.rows, call.cols()}, out.data(),
               v.data(), data_of(b), gpu_of(a.view()));
  }

  // Whether the BLAS library's ReLU keeps NaN; cuBLAS 12.4's returns 0. It is tried once for each
  // GPU and dtype, but not while a graph is captured: then the answer is no.
  static bool relu_keeps_nan(const ops::Product& call, const Tensor& a) {
    enum Answer { unknown, yes, no };
    static std::atomic<Answer> answers[kMostGpus][4];
    const Gpu on = gpu_of(a.view());
    if (on.index < 0 || on.index >= kMostGpus) return false;
    std::atomic<Answer>& answer = answers[on.index][static_cast<int>(call.dtype)];
    if (answer == unknown) {
      bool capturing = true;
      const gpu::Status asked = FUSEDOPS_KERNEL(on, is_capturing)(on.stream, capturing);
      if (asked != gpu::kSuccess || capturing) return false;
      answer = product_of_nan_is_nan(on, a, call.dtype) ? yes : no;
    }
    return answer == yes;
  }

  static bool product_of_nan_is_nan(const Gpu& on, const Tensor& like, DType dtype) {
    constexpr std::int64_t size = 32;
    const Tensor nan = temporary(like, {size, size}, dtype);
    const std::int64_t bytes = size * size * element_size(dtype);
    gpu::Status status = FUSEDOPS_KERNEL(on, fill_with_nan)(nan.data(), bytes, on.stream);
    if (status != gpu::kSuccess) return false;
    const Tensor y = torch().addmm_activation(zeros(like, size, dtype), nan, nan, false);
    std::uint32_t bits = 0;  // of one float, or of two 16-bit numbers
    status = FUSEDOPS_KERNEL(on, read)(&bits, y.data(), sizeof bits, on.stream);
    const std::uint32_t infinity = dtype == DType::float16 ? 0x7c000000u : 0x7f800000u;
    return status == gpu::kSuccess && (bits & 0x7fff0000u) > infinity;
  }

  // Whether the BLAS library applies the activation itself, as accurately as our kernels: its GELU
  // has too few digits for float32. torch passes the activation on only if no dimension is 1, and
  // drops it if there is nothing to sum. It allocates the result.
  static bool has_epilogue(const ops::Product& call, const Tensor& a) {
    const bool known =
        call.follow.activation == Activation::relu ||
        (call.follow.activation == Activation::gelu_tanh && element_size(call.dtype) == 2);
    return known && !Call::current().has_memory() && !call.follow.gated &&
           call.dtype != DType::float64 && call.rows > 1 && call.inner > 1 && call.width > 1 &&
           torch().has_addmm_activation() &&
           (call.follow.activation != Activation::relu || relu_keeps_nan(call, a));
  }
};

}  // namespace fusedops
