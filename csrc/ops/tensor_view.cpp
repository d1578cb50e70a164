#include "ops/tensor_view.h"

#include <algorithm>
#include <cstring>

namespace fusedops {
namespace {

std::string listed(const std::int64_t* numbers, std::int64_t count) {
  std::string text = "[";
  for (std::int64_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

// Most texts are the same literal, which needs no look at its letters.
bool same_text(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

}  // namespace

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float64:
      return "float64";
    case DType::unsupported:
      break;
  }
  return "another type";
}

TensorView shaped_like(TensorView like, const std::vector<std::int64_t>& sizes, DType dtype) {
  like.data = nullptr;
  like.dtype = dtype;
  like.dtype_name = name_of(dtype);
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

std::string to_string(const Device& device) {
  const std::string type = device.type;
  return device.index < 0 ? type : type + ":" + std::to_string(device.index);
}

std::string shape_of(const TensorView& tensor) { return listed(tensor.sizes, tensor.dim); }
std::string strides_of(const TensorView& tensor) { return listed(tensor.strides, tensor.dim); }

std::int64_t elements_of(const TensorView& tensor) {
  std::int64_t product = 1;
  for (std::int64_t i = 0; i < tensor.dim; ++i) product *= tensor.sizes[i];
  return product;
}

std::int64_t rows_of(const TensorView& tensor) {
  const std::int64_t cols = tensor.sizes[tensor.dim - 1];
  return cols == 0 ? 0 : elements_of(tensor) / cols;
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

bool has_unit_stride(const TensorView& tensor) {
  return tensor.sizes[tensor.dim - 1] <= 1 || tensor.strides[tensor.dim - 1] == 1;
}

bool has_dtype(const TensorView& tensor, const char* name) {
  return same_text(tensor.dtype_name, name);
}

bool same_device(const TensorView& a, const TensorView& b) {
  return a.device.index == b.device.index && same_text(a.device.type, b.device.type);
}

bool same_shape(const TensorView& a, const TensorView& b) {
  return a.dim == b.dim && std::equal(a.sizes, a.sizes + a.dim, b.sizes);
}

}  // namespace fusedops
