// Tensor arguments and the names their schema gives them.
#pragma once

#include <optional>

#include "ops/validate.h"

namespace fusedops {

// A tensor argument, and as the checks take it.
template <class Api>
struct Named {
  using Tensor = typename Api::Tensor;

  Named(const char* name, const Tensor& tensor_)
      : tensor(tensor_), view(Api::view(tensor_)), argument{name, view} {}
  Named(const Named&) = delete;

  const Tensor& tensor;
  const TensorView view;
  const Argument argument;
};

// One that need not be there.
template <class Api>
class NamedIf {
 public:
  NamedIf(const char* name, const std::optional<typename Api::Tensor>& tensor) {
    if (tensor) named_.emplace(name, *tensor);
  }
  const Argument* get() const { return named_ ? &named_->argument : nullptr; }

 private:
  std::optional<Named<Api>> named_;
};

}  // namespace fusedops
