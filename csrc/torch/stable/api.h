// The Api (torch/api.h) of the stable flavour: libtorch's stable ABI, torch >= 2.11.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/validate.h"
#include "torch/outputs.h"
#include "torch/types.h"

#if defined(FUSEDOPS_MODEL)  // csrc/platform/cpu: the operators of a modelled GPU, for CPU tensors
#define FUSEDOPS_FAMILY(family, m) STABLE_TORCH_LIBRARY_IMPL(fusedops, CPU, m)
#else
#define FUSEDOPS_FAMILY(family, m) STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m)
#endif
#define FUSEDOPS_BOX(function) TORCH_BOX(function)
#define FUSEDOPS_BOX_OUT(Name, function) \
  (&::fusedops::call_out<Name, TORCH_BOX(function), results_of(function)>)

namespace fusedops {

// X_out, by X's function.
inline void call_into(const char* op, std::uint64_t results,
                      void (*call)(StableIValue*, std::uint64_t, std::uint64_t),
                      StableIValue* stack, std::uint64_t arguments) {
  using torch::stable::Tensor;
  using torch::stable::detail::to;
  const std::uint64_t own = arguments - results - 1;
  std::vector<Tensor> outs;
  for (std::uint64_t i = 0; i < results; ++i) outs.push_back(to<Tensor>(stack[own + i]));
  auto memory = to<std::optional<Tensor>>(stack[own + results]);
  const Outputs<Tensor> entered(op, std::move(outs), std::move(memory));
  call(stack, own, results);
  for (std::uint64_t i = 0; i < results; ++i) to<Tensor>(stack[i]);  // X_out returns nothing
}

template <class Name, auto* kCall, std::uint64_t kResults>
void call_out(StableIValue* stack, std::uint64_t arguments, std::uint64_t) {
  call_into(Name::value(), kResults, kCall, stack, arguments);
}

struct Api {
  using Tensor = torch::stable::Tensor;
  using Scalar = torch::headeronly::ScalarType;

  // torch's guard is an object on the heap; asking for the current device first is cheaper.
  class Guard {
   public:
    explicit Guard([[maybe_unused]] int device_index) {
#if !defined(FUSEDOPS_MODEL)
      if (torch::stable::accelerator::getCurrentDeviceIndex() != device_index) {
        guard_.emplace(device_index);
      }
#endif
    }

   private:
    std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  };

  static TensorView view(const Tensor& tensor) {
    return view_of(tensor, tensor.get_device_index());
  }

  static Tensor contiguous(const Tensor& tensor) {
    return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
  }

  static Tensor clone(const Tensor& tensor) { return torch::stable::clone(tensor); }

  // `tensor` must be contiguous.
  static Tensor empty_like(const Tensor& tensor) {
    if (auto* to = Outputs<Tensor>::current()) return to->next(view, view(tensor));
    return empty_strided(tensor, tensor.sizes(), tensor.strides(), tensor.scalar_type());
  }

  static Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    if (auto* to = Outputs<Tensor>::current()) {
      return to->next(view, view_of_result(view(like), sizes, scalar_of<Scalar>(dtype)));
    }
    return empty_strided(like, sizes, contiguous_strides(sizes), scalar_of<Scalar>(dtype));
  }

  static Tensor temporary(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    const auto strides = contiguous_strides(sizes);
    const auto scalar = scalar_of<Scalar>(dtype);
    if (!has_memory()) return empty_strided(like, sizes, strides, scalar);
    return over(Outputs<Tensor>::current()->take(sizes, dtype), sizes, strides, scalar);
  }

  // Whether temporaries lie in memory of the caller.
  static bool has_memory() {
    const auto* const to = Outputs<Tensor>::current();
    return to && to->memory();
  }

  static Tensor empty_bytes(const Tensor& like, std::int64_t count) {
    constexpr std::int64_t stride = 1;
    return empty_strided(like, {&count, 1}, {&stride, 1}, Scalar::Byte);
  }

  static void* data(const Tensor& tensor) { return tensor.data_ptr(); }

  static gpu::Stream current_stream(int gpu) { return current_stream_of(gpu); }

 private:
  using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

  static std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& sizes) {
    std::vector<std::int64_t> strides(sizes.size(), 1);
    for (std::size_t at = sizes.size(); at-- > 1;) {
      strides[at - 1] = strides[at] * std::max<std::int64_t>(sizes[at], 1);
    }
    return strides;
  }

  // A tensor over the caller's memory, `offset` bytes from its beginning.
  static Tensor over(std::int64_t offset, Sizes sizes, Sizes strides, Scalar scalar) {
    const Tensor& memory = *Outputs<Tensor>::current()->memory();
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        static_cast<char*>(memory.data_ptr()) + offset, static_cast<std::int64_t>(sizes.size()),
        sizes.data(), strides.data(), 0, dtype_code(scalar), device_type(memory),
        memory.get_device_index(), &made));
    return Tensor(made);
  }

  static std::int32_t dtype_code(Scalar scalar) {
    return torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(scalar));
  }

  static std::int32_t device_type(const Tensor& tensor) {
    std::int32_t type = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
    return type;
  }

  // torch::stable::empty_like and new_empty look up their operator by name at each call; this does
  // not.
  static Tensor empty_strided(const Tensor& like, Sizes sizes, Sizes strides, Scalar scalar) {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
        static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), dtype_code(scalar),
        device_type(like), like.get_device_index(), &made));
    return Tensor(made);
  }
};

}  // namespace fusedops
