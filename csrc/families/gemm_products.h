// A product of x[..., K] and a weight [K, M], and the operation that follows it: by our skinny
// kernel, or by the BLAS library, past torch or as torch calls it, and further kernels.
#pragma once

#include <cstdint>
#include <string>

#include "families/api.h"

namespace fusedops {

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

// A weight with x's dtype and device; or, with scales, an int8 weight.
struct Factor {
  const Tensor& tensor;
  const Tensor* scale = nullptr;
};

// The operation that an MLP's `activation` names.
Follow following(const std::string& activation);
// Whether `weight` is one for products with x's type, of `inner` rows.
bool is_weight(const Factor& weight, const TensorView& x, std::int64_t inner);
// The product of x and a weight; refuses others.
Product checked_product(const TensorView& x, const Factor& weight, Follow follow = {});
// The product of `before`'s result and a further weight. x has the expected dtype and device.
Product checked_next(const Product& before, const TensorView& x, const Factor& weight);

inline Torch& torch() { return Call::current().torch(); }

// A factor a, [rows, inner]: a tensor of contiguous rows of any number of dimensions, or a matrix.
struct Rows {
  Tensor tensor;
  bool by_columns = false;  // its columns are contiguous in memory, else its rows
  std::int64_t pitch = 0;
};

// Whether the rows or the columns of a matrix lie one after the other, without overlap.
bool has_pitch(const TensorView& matrix);
// x[..., K] as rows; a copy only where a product cannot read x.
Rows as_rows(const Product& call, const Tensor& x);
// out = a weight + residual.
void add_product(const Product& call, const Tensor& out, const Tensor& a, const Tensor& weight,
                 const Tensor& residual);
// out = f(a weight + bias), f without gates, or a weight + residual, which is contiguous: by the
// BLAS library if it has that product, called by its own functions; returns whether it was.
bool try_blas(const Product& call, const Tensor& out, const Rows& a, const Tensor& weight,
              const OptionalTensor& bias = std::nullopt,
              const OptionalTensor& residual = std::nullopt);
// The product of rows and a weight, and of what follows it, in `out`.
void run_product(const Product& call, const Tensor& out, const Rows& a, const Factor& weight,
                 const OptionalTensor& bias = std::nullopt);
// The first product, multiplied by a second weight, in `out`.
void run_both(const Product& first, const Product& second, const Tensor& out, const Rows& a,
              const Factor& up, const OptionalTensor& bias, const Factor& down);

}  // namespace fusedops
