// What a family's binding is written with. A binding is compiled for the stable ABI, where
// TORCH_TARGET_VERSION is set; for one torch's C++ ABI (ATen); and for DLPack, where Py_LIMITED_API
// is set. Each flavour defines
//
//   Api                 Tensor, Scalar (the element type), Guard (makes a GPU current while it
//                       lives), view(tensor) -> TensorView, contiguous(tensor), clone(tensor),
//                       empty_like(tensor) and empty(like, sizes, dtype) for an operator's results,
//                       in their order, empty_bytes(like, count) for everything else,
//                       data(tensor), current_stream(gpu); torch's two flavours also
//                       temporary(like, sizes, dtype), and has_memory(): whether the caller gave
//                       memory for temporaries;
//   FUSEDOPS_FAMILY     registers a family's operators, with torch for the CUDA key, which is HIP's
//                       too:
//                         FUSEDOPS_FAMILY(vector_add, m) {
//                           FUSEDOPS_OPERATOR(m, "vector_add", &VectorAdd::vector_add);
//                         }
//                       FUSEDOPS_OPERATOR also registers vector_add_out (torch/outputs.h); one that
//                       writes to its arguments, or computes a gradient, has
//                       m.impl("NAME", FUSEDOPS_BOX(&Family::name)) alone.
//
// The operators' schemas are defined in Python, on the family's page: fusedops/families/NAME.py.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/validate.h"
#include "torch/types.h"

#if defined(Py_LIMITED_API)
#include "torch/dlpack/api.h"
#include "torch/dlpack/registrar.h"
#elif defined(TORCH_TARGET_VERSION)
#include "torch/stable/api.h"
#else
#include "torch/aten/api.h"
#include "torch/aten/registrar.h"
#endif

namespace fusedops {

using Tensor = Api::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Where to run a call on this tensor: the tensor's GPU and the caller's stream.
inline Gpu gpu_of(const TensorView& tensor) {
  return {tensor.device.index, Api::current_stream(tensor.device.index)};
}

// The functions ..._if and data_of take a tensor argument that may be None.
inline std::optional<TensorView> view_if(const OptionalTensor& tensor) {
  return tensor ? std::optional<TensorView>(Api::view(*tensor)) : std::nullopt;
}

inline void* data_of(const OptionalTensor& tensor) { return tensor ? Api::data(*tensor) : nullptr; }

inline OptionalTensor contiguous_if(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(Api::contiguous(*tensor)) : std::nullopt;
}

// A contiguous tensor that starts on 16 bytes, for kernels that need both.
inline Tensor on_16_bytes(const Tensor& tensor) {
  const Tensor contiguous = Api::contiguous(tensor);
  return aligned(Api::data(contiguous)) ? contiguous : Api::clone(contiguous);
}

inline OptionalTensor on_16_bytes_if(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(on_16_bytes(*tensor)) : std::nullopt;
}

// A tensor argument with the name its schema gives it, also in the form that the checks take.
struct Named {
  Named(const char* name, const Tensor& tensor_)
      : tensor(tensor_), view(Api::view(tensor_)), argument{name, view} {}
  Named(const Named&) = delete;

  const Tensor& tensor;
  const TensorView view;
  const Argument argument;
};

// A named argument that may be None.
class NamedIf {
 public:
  NamedIf(const char* name, const OptionalTensor& tensor) {
    if (tensor) named_.emplace(name, *tensor);
  }
  const Argument* get() const { return named_ ? &named_->argument : nullptr; }

 private:
  std::optional<Named> named_;
};

}  // namespace fusedops
