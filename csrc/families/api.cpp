#include "families/api.h"

namespace fusedops {

Gpu gpu_of(const TensorView& tensor) {
  const int index = tensor.device.index;
  return {index, Call::current().framework().current_stream(index)};
}

void* data_of(const OptionalTensor& tensor) { return tensor ? tensor->data() : nullptr; }

Tensor contiguous(const Tensor& tensor) {
  if (is_contiguous(tensor)) return tensor;
  return Call::current().framework().contiguous(tensor);
}

OptionalTensor contiguous_if(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(contiguous(*tensor)) : std::nullopt;
}

Tensor on_16_bytes(const Tensor& tensor) {
  const Tensor found = contiguous(tensor);
  return aligned(found.data()) ? found : Call::current().framework().clone(found);
}

OptionalTensor on_16_bytes_if(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(on_16_bytes(*tensor)) : std::nullopt;
}

Tensor empty_like(const Tensor& tensor) { return Call::current().result(tensor, tensor.view()); }

Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
  return Call::current().result(like, shaped_like(like, sizes, dtype));
}

Tensor temporary(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
  return Call::current().temporary(like, shaped_like(like, sizes, dtype));
}

OptionalTensor scratch(const Tensor& like, std::int64_t bytes) {
  if (bytes == 0) return {};
  return Call::current().framework().allocate_bytes(like, bytes);
}

}  // namespace fusedops
