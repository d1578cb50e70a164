// The Api (torch/api.h) of the aten flavour: libtorch's C++ API. Its narrow headers take 2.5 s to
// read; torch/extension.h takes 15.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <vector>

#include "ops/validate.h"
#include "torch/outputs.h"
#include "torch/types.h"

namespace fusedops {

struct Api {
  using Tensor = at::Tensor;
  using Scalar = at::ScalarType;

  class Guard {
   public:
    explicit Guard(int device_index) : guard_(gpu_device(device_index)) {}

   private:
    c10::DeviceGuard guard_;
  };

  static TensorView view(const Tensor& tensor) {
    return view_of(tensor, static_cast<int>(tensor.get_device()));
  }

  static Tensor contiguous(const Tensor& tensor) { return tensor.contiguous(); }

  static Tensor clone(const Tensor& tensor) { return tensor.clone(); }

  // `tensor` must be contiguous. A method of the tensor makes the new one here and below: the
  // header of at::empty_like takes most of a second to read.
  static Tensor empty_like(const Tensor& tensor) {
    if (auto* to = Outputs<Tensor>::current()) return to->next(view, view(tensor));
    return tensor.new_empty(tensor.sizes());
  }

  static Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    if (auto* to = Outputs<Tensor>::current()) {
      return to->next(view, view_of_result(view(like), sizes, scalar_of<Scalar>(dtype)));
    }
    return allocated(like, sizes, dtype);
  }

  static Tensor temporary(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    if (!has_memory()) return allocated(like, sizes, dtype);
    auto* const to = Outputs<Tensor>::current();
    std::int64_t bytes = element_size(dtype);
    for (const std::int64_t size : sizes) bytes *= size;
    const std::int64_t offset = to->take(sizes, dtype);
    return to->memory()->narrow(0, offset, bytes).view(scalar_of<Scalar>(dtype)).view(sizes);
  }

  // Whether temporaries lie in memory of the caller.
  static bool has_memory() {
    const auto* const to = Outputs<Tensor>::current();
    return to && to->memory();
  }

  static Tensor empty_bytes(const Tensor& like, std::int64_t count) {
    return like.new_empty({count}, like.options().dtype(at::kByte));
  }

  static void* data(const Tensor& tensor) { return tensor.data_ptr(); }

  static gpu::Stream current_stream(int gpu) { return current_stream_of(gpu); }

 private:
  static Tensor allocated(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    return like.new_empty(sizes, like.options().dtype(scalar_of<Scalar>(dtype)));
  }

  static c10::Device gpu_device(int index) {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
};

}  // namespace fusedops
