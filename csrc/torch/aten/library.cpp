// The operators in the dispatcher of one torch, through libtorch's C++ API. A library of operators
// registers them when it is loaded; in an extension module (TORCH_EXTENSION_NAME is set) typed.cpp
// does, once it is known that the running torch is the one that the module was built for.
//
// torch's headers take seconds to read. No other file of a front end includes them, and these are
// the narrow ones: torch/extension.h takes 15 s.
#include "torch/aten/library.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_addmm_activation_cuda_dispatch.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/inductor_ops.h>
#include <torch/library.h>

#include <memory>
#include <sstream>
#include <utility>

#include "torch/call_operator.h"
#include "torch/types.h"

// Constructors that torch's headers call and that libstdc++.so has only since GCC 9
// (GLIBCXX_3.4.26). A library brings its own, so that it loads wherever torch does.
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
template std::basic_stringstream<char>::basic_stringstream();

// The kernels of the CUDA key, called without the dispatcher: it costs time, and autocast would
// change the results' types. Only a torch built for a GPU has them, so they are weak.
namespace at::cuda {
__attribute__((weak)) Tensor& mm_out(Tensor&, const Tensor&, const Tensor&);
__attribute__((weak)) Tensor& addmm_out(Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                        const Scalar&, const Scalar&);
__attribute__((weak)) Tensor _addmm_activation(const Tensor&, const Tensor&, const Tensor&,
                                               const Scalar&, const Scalar&, bool);
}  // namespace at::cuda

namespace fusedops {
namespace {

at::Tensor& of_torch(const Tensor& tensor) { return *static_cast<at::Tensor*>(tensor.object()); }

TensorView view(const at::Tensor& tensor) {
  return view_of(tensor, static_cast<int>(tensor.get_device()));
}

// A tensor that torch made. Its sizes stay where they are when the at::Tensor is moved.
Tensor made(at::Tensor tensor) {
  const TensorView of = view(tensor);
  return {of, std::make_shared<at::Tensor>(std::move(tensor))};
}

class AtenTorch final : public Torch {
 public:
  // A method of the tensor makes the new one: the header of at::empty takes most of a second to
  // read.
  Tensor allocate(const Tensor& like, const TensorView& wanted) override {
    const at::Tensor& from = of_torch(like);
    const at::IntArrayRef sizes(wanted.sizes, static_cast<std::size_t>(wanted.dim));
    return made(
        from.new_empty(sizes, from.options().dtype(scalar_of<at::ScalarType>(wanted.dtype))));
  }

  Tensor allocate_bytes(const Tensor& like, std::int64_t count) override {
    const at::Tensor& from = of_torch(like);
    return made(from.new_empty({count}, from.options().dtype(at::kByte)));
  }

  Tensor contiguous(const Tensor& tensor) override { return made(of_torch(tensor).contiguous()); }

  Tensor clone(const Tensor& tensor) override { return made(of_torch(tensor).clone()); }

  gpu::Stream current_stream(int gpu) override { return current_stream_of(gpu); }

  Tensor matrix(const Tensor& contiguous, const Matrix& layout) override {
    return made(
        torch::inductor::_reinterpret_tensor(of_torch(contiguous), layout.sizes, layout.strides));
  }

  Tensor over(const Tensor& memory, std::int64_t offset, const TensorView& wanted) override {
    const std::int64_t bytes = elements_of(wanted) * element_size(wanted.dtype);
    const at::IntArrayRef sizes(wanted.sizes, static_cast<std::size_t>(wanted.dim));
    return made(of_torch(memory)
                    .narrow(0, offset, bytes)
                    .view(scalar_of<at::ScalarType>(wanted.dtype))
                    .view(sizes));
  }

  void zero(const Tensor& tensor) override { of_torch(tensor).zero_(); }

  void copy(const Tensor& to, const Tensor& from) override { of_torch(to).copy_(of_torch(from)); }

  void mm(const Tensor& out, const Tensor& a, const Tensor& b) override {
    using Function = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&);
    available<Function>(at::cuda::mm_out)(of_torch(out), of_torch(a), of_torch(b));
  }

  void addmm(const Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) override {
    using Function = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const at::Scalar&, const at::Scalar&);
    available<Function>(at::cuda::addmm_out)(of_torch(out), of_torch(row), of_torch(a), of_torch(b),
                                             1, 1);
  }

  bool has_addmm_activation() override { return at::cuda::_addmm_activation != nullptr; }

  Tensor addmm_activation(const Tensor& row, const Tensor& a, const Tensor& b, bool gelu) override {
    return made(at::cuda::_addmm_activation(of_torch(row), of_torch(a), of_torch(b), 1, 1, gelu));
  }
};

// The last `count` values of torch's stack.
class Arguments {
 public:
  class Guard {
   public:
    explicit Guard(int gpu) {
      if (gpu >= 0) guard_.reset_device({c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)});
    }

   private:
    c10::OptionalDeviceGuard guard_;
  };

  Arguments(const torch::jit::Stack& stack, std::size_t count)
      : values_(stack.data() + (stack.size() - count)) {}

  Tensor tensor(std::size_t i) const {
    const at::Tensor& tensor = values_[i].toTensor();
    return Tensor::borrowed(view(tensor), const_cast<at::Tensor*>(&tensor));
  }
  OptionalTensor tensor_if(std::size_t i) const {
    return values_[i].isNone() ? std::nullopt : OptionalTensor(tensor(i));
  }
  double number(std::size_t i) const { return values_[i].toDouble(); }
  std::int64_t integer(std::size_t i) const { return values_[i].toInt(); }
  bool flag(std::size_t i) const { return values_[i].toBool(); }
  const char* text(std::size_t i) const { return values_[i].toStringRef().c_str(); }
  DType dtype(std::size_t i) const { return dtype_of(values_[i].toScalarType()); }

 private:
  const c10::IValue* const values_;
};

// X or X_out, in the form in which torch's dispatcher calls it from Python: arguments and results
// on a stack. torch::Library::impl can wrap a function too, but its templates cost the compiler
// 0.15 s an operator. This does not compare the function with its schema: the tests do.
class Boxed final : public c10::OperatorKernel {
 public:
  Boxed(const Operator& op, bool into) : op_(op), into_(into) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    AtenTorch torch;
    const std::size_t count = op_.arguments + (into_ ? op_.results + 1 : 0);
    std::array<Tensor, kMostResults> results;
    Arguments arguments(*stack, count);
    call_operator(op_, into_, torch, arguments, results.data());
    stack->resize(stack->size() - count);
    for (std::size_t i = 0; !into_ && i < op_.results; ++i) {
      stack->emplace_back(of_torch(results[i]));
    }
  }

 private:
  const Operator& op_;
  const bool into_;
};

}  // namespace

std::vector<BoxedOperator> boxed_operators() {
  std::vector<BoxedOperator> boxed;
  const auto add = [&](const Operator& op, const char* end, bool into) {
    boxed.push_back({std::string(op.name) + end,
                     c10::BoxedKernel::makeFromFunctor(std::make_unique<Boxed>(op, into))});
  };
  for (const Operator& op : operators()) {
    add(op, "", false);
    if (op.has_out) add(op, "_out", true);
  }
  return boxed;
}

#if !defined(TORCH_EXTENSION_NAME)
TORCH_LIBRARY_IMPL(fusedops, CUDA, library) {
  for (BoxedOperator& op : boxed_operators()) {
    library.impl(op.name.c_str(), torch::CppFunction::makeFromBoxedKernel(std::move(op.kernel)));
  }
}
#endif

}  // namespace fusedops
