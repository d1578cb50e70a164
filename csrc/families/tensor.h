// A tensor as an operator sees it, whatever framework made it.
#pragma once

#include <memory>
#include <optional>

#include "ops/tensor_view.h"

namespace fusedops {

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
  void* data() const { return view_.data; }
  void* object() const { return object_.get(); }

 private:
  TensorView view_{};
  std::shared_ptr<void> object_;
};

using OptionalTensor = std::optional<Tensor>;

}  // namespace fusedops
