// The checks and the launch of products of x[..., K] with weights [K, M], and of what follows the
// product.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gemm_skinny.h"
#include "ops/validate.h"

namespace fusedops::ops {

// The operation after a product: f(v), or v1 f(v2) of the halves of v's rows.
struct Follow {
  Activation activation = Activation::identity;
  bool gated = false;
};

// y = f(v), where v = a weight + bias, a is [rows, inner] and the weight is [inner, width].
struct Product {
  DType dtype;
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t width;
  std::int64_t groups;  // groups of an int8 weight's rows, each with a scale; 0 for no int8
  Follow follow;

  std::int64_t cols() const { return follow.gated ? width / 2 : width; }
};

// A weight [K, M] with x's dtype and device; or, with a scale, an int8 weight.
struct Weight {
  Argument argument;
  const Argument* scale = nullptr;
};

// The operation that an MLP's `activation` names.
Follow following(const char* op, const std::string& activation);
// Checks the product of x[..., K] and a weight.
Product check_product(const char* op, const Argument& x, const Weight& weight, Follow follow = {});
// Checks the product of `before`'s result and a further weight. `x` and `weight_before` are for the
// error messages.
Product check_next(const char* op, const Product& before, const Argument& x, const Weight& weight,
                   const Weight& weight_before);
// The bias must be a row of the weight's width, with x's dtype and device.
void check_bias(const char* op, const Argument& bias, const Argument& x, const Weight& weight);
// Checks q[s, e, c] and weight [s, m], for the product of q's transpose [e c, s] and the weight.
Product check_einsum(const char* op, const Argument& q, const Argument& weight);

// The sizes of `like`, with `cols` as the last.
std::vector<std::int64_t> sizes_like(const TensorView& like, std::int64_t cols);

// Runs the product on the skinny GEMM kernel if that supports it and is faster; returns whether it
// did. `a` and the bias are contiguous.
bool try_skinny_gemm(const char* op, const Product& call, const TensorView& weight,
                     const kernels::GemmSkinnyTensors& tensors, const Gpu& on);

}  // namespace fusedops::ops
