// The operators in the dispatcher of torch >= 2.11, through libtorch's stable ABI: C functions and
// handles of tensors.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "torch/call_operator.h"
#include "torch/types.h"

// Declared in torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h. Only a torch built for a GPU
// has them, so they are weak. They bypass the dispatcher, so autocast does not change the types.
extern "C" {
__attribute__((weak)) AOTITorchError FUSEDOPS_AOTI(mm_out)(AtenTensorHandle, AtenTensorHandle,
                                                           AtenTensorHandle);
__attribute__((weak)) AOTITorchError FUSEDOPS_AOTI(addmm_out)(AtenTensorHandle, AtenTensorHandle,
                                                              AtenTensorHandle, AtenTensorHandle,
                                                              double, double);
}

namespace fusedops {
namespace {

using Scalar = torch::headeronly::ScalarType;
namespace ivalue = torch::stable::detail;

AtenTensorHandle of_torch(const Tensor& tensor) {
  return static_cast<AtenTensorHandle>(tensor.object());
}

std::int32_t code_of(Scalar scalar) { return ivalue::to<std::int32_t>(ivalue::from(scalar)); }

std::int32_t device_type(AtenTensorHandle tensor) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &type));
  return type;
}

std::int32_t device_index(AtenTensorHandle tensor) {
  std::int32_t index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &index));
  return index;
}

// What view_of reads of a tensor.
class Handle {
 public:
  explicit Handle(AtenTensorHandle tensor)
      : tensor_(tensor),
        device_type_(device_type(tensor)),
        dim_(get<std::int64_t>(aoti_torch_get_dim)) {}

  void* data_ptr() const { return get<void*>(aoti_torch_get_data_ptr); }
  Scalar scalar_type() const {
    return ivalue::to<Scalar>(ivalue::from(get<std::int32_t>(aoti_torch_get_dtype)));
  }
  bool is_cuda() const { return device_type_ == aoti_torch_device_type_cuda(); }
  bool is_cpu() const { return device_type_ == aoti_torch_device_type_cpu(); }
  torch::headeronly::IntHeaderOnlyArrayRef sizes() const {
    return {get<std::int64_t*>(aoti_torch_get_sizes), static_cast<std::size_t>(dim_)};
  }
  torch::headeronly::IntHeaderOnlyArrayRef strides() const {
    return {get<std::int64_t*>(aoti_torch_get_strides), static_cast<std::size_t>(dim_)};
  }

 private:
  template <class T>
  T get(AOTITorchError (*function)(AtenTensorHandle, T*)) const {
    T value{};
    TORCH_ERROR_CODE_CHECK(function(tensor_, &value));
    return value;
  }

  const AtenTensorHandle tensor_;
  const std::int32_t device_type_;
  const std::int64_t dim_;
};

void release(AtenTensorHandle tensor) { aoti_torch_delete_tensor_object(tensor); }
void release_text(StringHandle text) { torch_delete_string(text); }

// Takes over a handle.
Tensor owned(AtenTensorHandle tensor) {
  std::shared_ptr<void> object(tensor, &release);
  return {view_of(Handle(tensor), device_index(tensor)), std::move(object)};
}

class StableTorch final : public Torch {
 public:
  // torch::stable::new_empty looks up its operator by name at each call; this does not.
  Tensor allocate(const Tensor& like, const TensorView& wanted) override {
    const ContiguousStrides strides(wanted);
    return empty_strided(like, wanted.sizes, strides.data(), wanted.dim,
                         scalar_of<Scalar>(wanted.dtype));
  }

  Tensor allocate_bytes(const Tensor& like, std::int64_t count) override {
    constexpr std::int64_t stride = 1;
    return empty_strided(like, &count, &stride, 1, Scalar::Byte);
  }

  Tensor contiguous(const Tensor& tensor) override {
    const TensorView& view = tensor.view();  // of any dtype
    const ContiguousStrides strides(view);
    const Scalar scalar = Handle(of_torch(tensor)).scalar_type();
    Tensor made = empty_strided(tensor, view.sizes, strides.data(), view.dim, scalar);
    copy(made, tensor);
    return made;
  }

  Tensor clone(const Tensor& tensor) override {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_clone(of_torch(tensor), &made));
    return owned(made);
  }

  gpu::Stream current_stream(int gpu) override { return current_stream_of(gpu); }

  Tensor matrix(const Tensor& contiguous, const Matrix& layout) override {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(of_torch(contiguous), 2, layout.sizes,
                                                          layout.strides, 0, &made));
    return owned(made);
  }

  Tensor over(const Tensor& memory, std::int64_t offset, const TensorView& wanted) override {
    const ContiguousStrides strides(wanted);
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        static_cast<char*>(memory.data()) + offset, wanted.dim, wanted.sizes, strides.data(), 0,
        code_of(scalar_of<Scalar>(wanted.dtype)), device_type(of_torch(memory)),
        device_index(of_torch(memory)), &made));
    return owned(made);
  }

  void copy(const Tensor& to, const Tensor& from) override {
    TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(of_torch(to), of_torch(from), 0));
  }

  void mm(const Tensor& out, const Tensor& a, const Tensor& b) override {
    TORCH_ERROR_CODE_CHECK(
        available(FUSEDOPS_AOTI(mm_out))(of_torch(out), of_torch(a), of_torch(b)));
  }

  void addmm(const Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) override {
    TORCH_ERROR_CODE_CHECK(available(FUSEDOPS_AOTI(addmm_out))(of_torch(out), of_torch(row),
                                                               of_torch(a), of_torch(b), 1, 1));
  }

 private:
  static Tensor empty_strided(const Tensor& like, const std::int64_t* sizes,
                              const std::int64_t* strides, std::int64_t dim, Scalar scalar) {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(dim, sizes, strides, code_of(scalar),
                                                    device_type(of_torch(like)),
                                                    device_index(of_torch(like)), &made));
    return owned(made);
  }
};

// Makes a GPU the current one while it lives. torch's guard is an object on the heap; asking for
// the current device first is cheaper.
class StableGuard {
 public:
  explicit StableGuard(int index) {
    if (gpu::kModelled || index < 0) return;
    if (torch::stable::accelerator::getCurrentDeviceIndex() != index) guard_.emplace(index);
  }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

// A call's arguments on torch's stack, each of which is to be taken once.
class StableStack {
 public:
  using Guard = StableGuard;

  explicit StableStack(const StableIValue* values) : values_(values) {}

  Tensor tensor(std::size_t i) const { return owned(ivalue::to<AtenTensorHandle>(values_[i])); }
  OptionalTensor tensor_if(std::size_t i) const {
    const auto handle = ivalue::to<std::optional<AtenTensorHandle>>(values_[i]);
    return handle ? OptionalTensor(owned(*handle)) : std::nullopt;
  }
  double number(std::size_t i) const { return ivalue::to<double>(values_[i]); }
  std::int64_t integer(std::size_t i) const { return ivalue::to<std::int64_t>(values_[i]); }
  bool flag(std::size_t i) const { return ivalue::to<bool>(values_[i]); }
  // torch::stable's conversion to a std::string leaks it (torch 2.11).
  const char* text(std::size_t i) {
    const auto& text = texts_.emplace_front(ivalue::to<StringHandle>(values_[i]), &release_text);
    const char* data = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(text.get(), &data));
    return data;
  }
  DType dtype(std::size_t i) const { return dtype_of(ivalue::to<Scalar>(values_[i])); }

 private:
  const StableIValue* const values_;
  std::forward_list<std::unique_ptr<StringOpaque, void (*)(StringHandle)>> texts_;
};

// Another handle of the same tensor, which torch takes over.
StableIValue to_torch(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(of_torch(tensor), &handle));
  return ivalue::from(handle);
}

void call(const Operator& op, bool into, StableIValue* stack) {
  StableTorch torch;
  StableStack arguments(stack);
  std::array<Tensor, kMostResults> results;
  call_operator(op, into, torch, arguments, results.data());
  for (std::size_t i = 0; !into && i < op.results; ++i) stack[i] = to_torch(results[i]);
}

// torch's stable ABI takes functions without data, so the place in the list is part of the type.
using Function = void(StableIValue*, std::uint64_t, std::uint64_t);
constexpr std::size_t kMostOperators = 96;

template <std::size_t kPlace, bool kInto>
void call_at(StableIValue* stack, std::uint64_t, std::uint64_t) {
  call(operators()[kPlace], kInto, stack);
}

template <bool kInto, std::size_t... kPlace>
constexpr std::array<Function*, sizeof...(kPlace)> functions(std::index_sequence<kPlace...>) {
  return {&call_at<kPlace, kInto>...};
}

constexpr auto kCalls = functions<false>(std::make_index_sequence<kMostOperators>{});
constexpr auto kCallsInto = functions<true>(std::make_index_sequence<kMostOperators>{});

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(fusedops, FUSEDOPS_DISPATCH_KEY, library) {
  for (std::size_t i = 0; i < operators().size(); ++i) {
    const Operator& op = operators()[i];
    library.impl(op.name, kCalls.at(i));
    if (op.has_out) library.impl((std::string(op.name) + "_out").c_str(), kCallsInto.at(i));
  }
}

}  // namespace fusedops
