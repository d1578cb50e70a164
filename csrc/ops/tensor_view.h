// What the host side knows of a tensor. A view does not own the tensor.
#pragma once

#include <string>
#include <vector>

#include "kernels/types.h"

namespace fusedops {

struct Device {
  const char* type;  // as torch names it: "cpu", "cuda"
  int index;         // -1 where the type has one device
};

struct TensorView {
  void* data;
  DType dtype;
  const char* dtype_name;  // as torch names it
  const std::int64_t* sizes;
  std::int64_t dim;
  Device device;
  const std::int64_t* strides;  // in elements
};

// torch's name of a type that the kernels know.
const char* name_of(DType dtype);
// What a tensor of these sizes and this dtype would be on the device of `like`: without memory. The
// sizes must outlive it.
TensorView shaped_like(TensorView like, const std::vector<std::int64_t>& sizes, DType dtype);
// The strides of a contiguous tensor of these sizes.
class ContiguousStrides {
 public:
  explicit ContiguousStrides(const TensorView& of);
  ContiguousStrides(const ContiguousStrides&) = delete;
  const std::int64_t* data() const { return many_.empty() ? few_ : many_.data(); }

 private:
  static constexpr std::int64_t kFew = 8;  // dimensions that need no allocation

  std::int64_t few_[kFew];
  std::vector<std::int64_t> many_;
};
std::string to_string(const Device& device);
std::string shape_of(const TensorView& tensor);
std::string strides_of(const TensorView& tensor);
std::int64_t elements_of(const TensorView& tensor);
// The rows along the last dimension; 0 if the tensor has no elements. It has at least one
// dimension.
std::int64_t rows_of(const TensorView& tensor);
// Whether the elements lie one after the other, in order.
bool is_contiguous(const TensorView& tensor);
// Whether the elements along the last dimension are neighbours.
bool has_unit_stride(const TensorView& tensor);
bool has_dtype(const TensorView& tensor, const char* name);
bool same_device(const TensorView& a, const TensorView& b);
bool same_shape(const TensorView& a, const TensorView& b);

}  // namespace fusedops
