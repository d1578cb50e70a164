#include "ops/gemm.h"

#include <string>

#include "ops/dequantize.h"
#include "ops/validate.h"

namespace fusedops::ops {
namespace {

std::string last_of(const Argument& like) {
  return std::string("the last dimension of ") + like.name;
}

// Checks a weight. Returns the groups of an int8 weight's rows; 0 for another weight.
std::int64_t check_weight(const char* op, const Weight& weight, const Argument& x,
                          std::int64_t inner, const std::string& which) {
  const Argument& argument = weight.argument;
  if (!weight.scale) {
    check_same_dtype(op, argument, x);
  } else if (!has_dtype(argument.tensor, "int8")) {
    fail(op, argument.name, "dtype int8", argument.tensor.dtype_name);
  }
  check_same_device(op, argument, x);
  if (argument.tensor.dim != 2 || argument.tensor.sizes[0] != inner) {
    fail(op, argument.name, "shape [" + std::to_string(inner) + ", any] (" + which + ")",
         shape_of(argument.tensor));
  }
  return weight.scale ? check_scale(op, *weight.scale, argument) : 0;
}

}  // namespace

Follow following(const char* op, const std::string& activation) {
  if (activation == "gelu") return {Activation::gelu_tanh};
  if (activation == "gelu_erf") return {Activation::gelu_erf};
  if (activation == "relu") return {Activation::relu};
  if (activation == "geglu") return {Activation::gelu_tanh, true};
  if (activation == "geglu_erf") return {Activation::gelu_erf, true};
  if (activation == "swiglu") return {Activation::silu, true};
  if (activation == "reglu") return {Activation::relu, true};
  fail(op, "activation", "'gelu', 'gelu_erf', 'relu', 'geglu', 'geglu_erf', 'swiglu' or 'reglu'",
       "'" + activation + "'");
}

Product check_product(const char* op, const Argument& x, const Weight& weight, Follow follow) {
  check_rows(op, x);
  if (weight.scale && x.tensor.dtype == DType::float64) {
    fail(op, x.name, "dtype float32, float16 or bfloat16", x.tensor.dtype_name);
  }
  const std::int64_t inner = x.tensor.sizes[x.tensor.dim - 1];
  const std::int64_t groups = check_weight(op, weight, x, inner, last_of(x));
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i + 1 < x.tensor.dim; ++i) rows *= x.tensor.sizes[i];
  const std::int64_t width = weight.argument.tensor.sizes[1];
  if (follow.gated && width % 2 != 0) {
    fail(op, weight.argument.name, "an even last dimension (values and gates)",
         std::to_string(width));
  }
  return {x.tensor.dtype, rows, inner, width, groups, follow};
}

Product check_next(const char* op, const Product& before, const Argument& x, const Weight& weight,
                   const Weight& weight_before) {
  const std::int64_t inner = before.cols();
  const std::string half = before.follow.gated ? "half " : "";
  const std::int64_t groups =
      check_weight(op, weight, x, inner, half + last_of(weight_before.argument));
  return {before.dtype, before.rows, inner, weight.argument.tensor.sizes[1], groups, {}};
}

void check_bias(const char* op, const Argument& bias, const Argument& x, const Weight& weight) {
  check_like(op, bias, x);
  check_row(op, bias, weight.argument);
}

Product check_einsum(const char* op, const Argument& q, const Argument& weight) {
  check_floating(op, q);
  if (q.tensor.dim != 3) fail(op, q.name, "3 dimensions", std::to_string(q.tensor.dim));
  const std::int64_t* sizes = q.tensor.sizes;
  check_weight(op, {weight}, q, sizes[0], std::string("the first dimension of ") + q.name);
  return {q.tensor.dtype, sizes[1] * sizes[2], sizes[0], weight.tensor.sizes[1], 0, {}};
}

std::vector<std::int64_t> sizes_like(const TensorView& like, std::int64_t cols) {
  std::vector<std::int64_t> sizes(like.sizes, like.sizes + like.dim);
  sizes.back() = cols;
  return sizes;
}

bool try_skinny_gemm(const char* op, const Product& call, const TensorView& weight,
                     const kernels::GemmSkinnyTensors& tensors, const Gpu& on) {
  const bool by_columns = weight.strides[0] == 1, by_rows = weight.strides[1] == 1;
  if (!by_columns && !by_rows) return false;
  const kernels::GemmSkinny gemm{call.dtype,        call.follow.activation,
                                 call.follow.gated, call.rows,
                                 call.inner,        call.cols(),
                                 !by_rows,          weight.strides[by_rows ? 0 : 1],
                                 call.groups};
  if (!FUSEDOPS_KERNEL(on, gemm_skinny_takes)(gemm, tensors)) return false;
  check_launch(op, on, FUSEDOPS_KERNEL(on, gemm_skinny)(gemm, tensors, on.stream));
  return true;
}

}  // namespace fusedops::ops
