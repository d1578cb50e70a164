// A tensor as an operator sees it, whatever framework made it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace fusedops {

struct Device {
  const char* type;  // as torch names it: "cpu", "cuda"
  int index;         // of a GPU; -1 for what is none
};

// What the host side knows of a tensor. A view does not own the tensor.
struct TensorView {
  void* data;
  DType dtype;
  const std::int64_t* sizes;
  std::int64_t dim;
  Device device;
  const std::int64_t* strides;  // in elements
};

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
std::string strides_of(const TensorView& tensor);
std::int64_t elements_of(const TensorView& tensor);
// The size of the last dimension, of which there is at least one, and the number of rows along it;
// 0 rows if the tensor has no elements.
inline std::int64_t cols_of(const TensorView& tensor) { return tensor.sizes[tensor.dim - 1]; }
std::int64_t rows_of(const TensorView& tensor);
// The sizes, with `cols` as the last.
std::vector<std::int64_t> sizes_with(const TensorView& tensor, std::int64_t cols);
// Whether the elements lie one after the other, in order.
bool is_contiguous(const TensorView& tensor);
// Whether the elements along the last dimension are neighbours.
inline bool has_unit_stride(const TensorView& tensor) {
  return cols_of(tensor) <= 1 || tensor.strides[tensor.dim - 1] == 1;
}
bool same_shape(const TensorView& a, const TensorView& b);

// A view of a tensor, and the framework's own object, which only the framework's side looks at.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const TensorView& view, std::shared_ptr<void> object);
  // Inlined, these would be a third of the operators' code.
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();

  // The caller keeps `object` alive as long as the tensor and its copies.
  static Tensor borrowed(const TensorView& view, void* object);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  void* data() const { return view_.data; }
  void* object() const { return object_.get(); }

 private:
  TensorView view_{};
  std::shared_ptr<void> object_;
};

using OptionalTensor = std::optional<Tensor>;

}  // namespace fusedops
