#include "families/tensor.h"

#include <utility>

namespace fusedops {

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
