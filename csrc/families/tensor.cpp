#include "families/tensor.h"

#include <algorithm>
#include <utility>

namespace fusedops {

TensorView shaped_like(TensorView like, const std::vector<std::int64_t>& sizes, DType dtype) {
  like.data = nullptr;
  like.dtype = dtype;
  like.sizes = sizes.data();
  like.dim = static_cast<std::int64_t>(sizes.size());
  like.strides = nullptr;
  return like;
}

ContiguousStrides::ContiguousStrides(const TensorView& of) {
  if (of.dim > kFew) many_.resize(static_cast<std::size_t>(of.dim));
  std::int64_t* const strides = many_.empty() ? few_ : many_.data();
  std::int64_t next = 1;
  for (std::int64_t at = of.dim; at-- > 0;) {
    strides[at] = next;
    next *= std::max<std::int64_t>(of.sizes[at], 1);
  }
}

std::string strides_of(const TensorView& tensor) {
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.dim; ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.strides[i]);
  }
  return text + "]";
}

std::int64_t elements_of(const TensorView& tensor) {
  std::int64_t product = 1;
  for (std::int64_t i = 0; i < tensor.dim; ++i) product *= tensor.sizes[i];
  return product;
}

std::int64_t rows_of(const TensorView& tensor) {
  const std::int64_t cols = cols_of(tensor);
  return cols == 0 ? 0 : elements_of(tensor) / cols;
}

std::vector<std::int64_t> sizes_with(const TensorView& tensor, std::int64_t cols) {
  std::vector<std::int64_t> sizes(tensor.sizes, tensor.sizes + tensor.dim);
  sizes.back() = cols;
  return sizes;
}

bool is_contiguous(const TensorView& tensor) {
  std::int64_t expected = 1;
  for (std::int64_t at = tensor.dim; at-- > 0;) {
    if (tensor.sizes[at] == 0) return true;
    if (tensor.sizes[at] != 1 && tensor.strides[at] != expected) return false;
    expected *= tensor.sizes[at];
  }
  return true;
}

bool same_shape(const TensorView& a, const TensorView& b) {
  return a.dim == b.dim && std::equal(a.sizes, a.sizes + a.dim, b.sizes);
}

Tensor::Tensor(const TensorView& view, std::shared_ptr<void> object)
    : view_(view), object_(std::move(object)) {}
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

Tensor Tensor::borrowed(const TensorView& view, void* object) {
  return {view, std::shared_ptr<void>(std::shared_ptr<void>(), object)};
}

}  // namespace fusedops
