// Products of x[..., K] and weights [K, M], and what follows them: what is allowed, and the launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gemm_skinny.h"
#include "ops/validate.h"

namespace fusedops::ops {

// What follows a product: f, or of the halves of its rows v1 f(v2).
struct Follow {
  Activation activation = Activation::identity;
  bool gated = false;
};

// y = f(v) of v = a weight + bias, where a is [rows, inner] and the weight [inner, width].
struct Product {
  DType dtype;
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t width;
  std::int64_t groups;  // of an int8 weight's rows, which have a scale each; 0 for no int8
  Follow follow;

  std::int64_t cols() const { return follow.gated ? width / 2 : width; }
};

// A weight [K, M] of x's type on its device; or, with a scale, of int8.
struct Weight {
  Argument argument;
  const Argument* scale = nullptr;
};

// What an MLP's `activation` names.
Follow following(const char* op, const std::string& activation);
// x[..., K] by a weight.
Product check_product(const char* op, const Argument& x, const Weight& weight, Follow follow = {});
// What `before` gives by a further weight; `x` and `weight_before` are for the words.
Product check_next(const char* op, const Product& before, const Argument& x, const Weight& weight,
                   const Weight& weight_before);
// A row of the weight's width, of the type of x on its device.
void check_bias(const char* op, const Argument& bias, const Argument& x, const Weight& weight);
// q[s, e, c] and weight [s, m]: the product of q's transpose [e c, s] and weight.
Product check_einsum(const char* op, const Argument& q, const Argument& weight);

// The sizes of `like`, but `cols` for the last.
std::vector<std::int64_t> sizes_like(const TensorView& like, std::int64_t cols);

// The product by the kernel for few rows, if there is one for it. `a` and the bias are contiguous.
bool try_skinny_gemm(const char* op, const Product& call, const TensorView& weight,
                     const kernels::GemmSkinnyTensors& tensors, gpu::Stream stream);

}  // namespace fusedops::ops
