// torch as the framework of operators, through libtorch's C++ API. The object of a Tensor is its
// at::TensorImpl.
//
// torch's headers take seconds to read. library.cpp and entry_points.cpp are one unit in an
// extension module, and these are the narrow ones: torch/extension.h takes 15 s.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/inductor_ops.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "families/framework.h"
#include "torch/types.h"

// The kernels of the dispatch key, called without the dispatcher: it costs time, and autocast would
// change the results' types. Only a torch built for a GPU has them, so they are weak.
namespace at::FUSEDOPS_ATEN {
__attribute__((weak)) Tensor& mm_out(Tensor&, const Tensor&, const Tensor&);
__attribute__((weak)) Tensor& addmm_out(Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                        const Scalar&, const Scalar&);
}  // namespace at::FUSEDOPS_ATEN

namespace fusedops::aten {

// Registers X and X_out of every operator.
void register_operators(torch::Library& library);

inline TensorView view(const at::Tensor& tensor) {
  return view_of(tensor, static_cast<int>(tensor.get_device()));
}

inline Tensor borrowed(const at::Tensor& tensor) {
  return Tensor::borrowed(view(tensor), tensor.unsafeGetTensorImpl());
}

inline Tensor owned(at::Tensor tensor) {
  const TensorView of = view(tensor);
  void* const impl = tensor.unsafeGetTensorImpl();
  return {of, std::shared_ptr<void>(std::make_shared<at::Tensor>(std::move(tensor)), impl)};
}

inline at::Tensor of_impl(void* impl) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
      static_cast<c10::TensorImpl*>(impl)));
}

inline at::Tensor of_torch(const Tensor& tensor) { return of_impl(tensor.object()); }

// Makes a GPU the current one while it lives.
class AtenGuard {
 public:
  explicit AtenGuard(int index) {
    if (gpu::kModelled || index < 0) return;
    guard_.reset_device({c10::kCUDA, static_cast<c10::DeviceIndex>(index)});
  }

 private:
  c10::OptionalDeviceGuard guard_;
};

class AtenTorch final : public Torch {
 public:
  // A method of the tensor makes the new one: the header of at::empty takes most of a second to
  // read.
  Tensor allocate(const Tensor& like, const TensorView& wanted) override {
    const at::Tensor from = of_torch(like);
    const auto options = from.options().dtype(scalar_of<at::ScalarType>(wanted.dtype));
    return owned(from.new_empty(sizes_of(wanted), options));
  }

  Tensor allocate_bytes(const Tensor& like, std::int64_t count) override {
    const at::Tensor from = of_torch(like);
    return owned(from.new_empty({count}, from.options().dtype(at::kByte)));
  }

  Tensor contiguous(const Tensor& tensor) override { return owned(of_torch(tensor).contiguous()); }

  Tensor clone(const Tensor& tensor) override { return owned(of_torch(tensor).clone()); }

  gpu::Stream current_stream(int gpu) override { return current_stream_of(gpu); }

  Tensor matrix(const Tensor& contiguous, const Matrix& layout) override {
    return owned(
        torch::inductor::_reinterpret_tensor(of_torch(contiguous), layout.sizes, layout.strides));
  }

  Tensor over(const Tensor& memory, std::int64_t offset, const TensorView& wanted) override {
    const std::int64_t bytes = elements_of(wanted) * element_size(wanted.dtype);
    return owned(of_torch(memory)
                     .narrow(0, offset, bytes)
                     .view(scalar_of<at::ScalarType>(wanted.dtype))
                     .view(sizes_of(wanted)));
  }

  void copy(const Tensor& to, const Tensor& from) override { of_torch(to).copy_(of_torch(from)); }

  void mm(const Tensor& out, const Tensor& a, const Tensor& b) override {
    using Function = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&);
    at::Tensor to = of_torch(out);
    available<Function>(at::FUSEDOPS_ATEN::mm_out)(to, of_torch(a), of_torch(b));
  }

  void addmm(const Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) override {
    using Function = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const at::Scalar&, const at::Scalar&);
    at::Tensor to = of_torch(out);
    available<Function>(at::FUSEDOPS_ATEN::addmm_out)(to, of_torch(row), of_torch(a), of_torch(b),
                                                      1, 1);
  }

 private:
  static at::IntArrayRef sizes_of(const TensorView& view) {
    return {view.sizes, static_cast<std::size_t>(view.dim)};
  }
};

}  // namespace fusedops::aten
