// What an Api must have, and what its two forms share.
//
// Api is a traits class of one torch C++ API: Tensor, Guard (makes a device current while it
// lives), view(tensor) -> TensorView, contiguous(tensor), clone(tensor), empty_like(tensor),
// empty(like, sizes, dtype), empty_bytes(like, count), data(tensor), stream(device index).
#pragma once

#include <cstdint>
#include <optional>

#include "ops/tensor_view.h"
#include "torch/scalar.h"

namespace fusedops {

inline constexpr const char* kNoGpuStream =
    "fusedops: this torch was built without GPU support, so it has no GPU stream";

// The view of a tensor whose GPU, if it lies on one, has the number `index`.
template <class Tensor>
TensorView view_of(const Tensor& tensor, int index) {
  const auto sizes = tensor.sizes();
  const auto scalar = tensor.scalar_type();
  const Device device = tensor.is_cuda()
                            ? Device{"cuda", index}
                            : Device{tensor.is_cpu() ? "cpu" : "another kind of device", -1};
  return {tensor.data_ptr(),
          dtype_of(scalar),
          dtype_name_of(scalar),
          sizes.data(),
          static_cast<std::int64_t>(sizes.size()),
          device,
          tensor.strides().data()};
}

// The view and the data of a tensor that need not be there.
template <class Api>
std::optional<TensorView> view_if(const std::optional<typename Api::Tensor>& tensor) {
  return tensor ? std::optional<TensorView>(Api::view(*tensor)) : std::nullopt;
}

template <class Api>
void* data_of(const std::optional<typename Api::Tensor>& tensor) {
  return tensor ? Api::data(*tensor) : nullptr;
}

// Contiguous, if it is there.
template <class Api>
std::optional<typename Api::Tensor> contiguous_if(
    const std::optional<typename Api::Tensor>& tensor) {
  using Optional = std::optional<typename Api::Tensor>;
  return tensor ? Optional(Api::contiguous(*tensor)) : std::nullopt;
}

// A contiguous tensor that starts on 16 bytes, for kernels that have no other form.
template <class Api>
typename Api::Tensor on_16_bytes(const typename Api::Tensor& tensor) {
  const typename Api::Tensor same = Api::contiguous(tensor);
  return aligned(Api::data(same)) ? same : Api::clone(same);
}

template <class Api>
std::optional<typename Api::Tensor> on_16_bytes_if(
    const std::optional<typename Api::Tensor>& tensor) {
  using Optional = std::optional<typename Api::Tensor>;
  return tensor ? Optional(on_16_bytes<Api>(*tensor)) : std::nullopt;
}

}  // namespace fusedops
