// The operators in the dispatcher of one torch, through libtorch's C++ API. A library of operators
// registers them when it is loaded; in an extension module (TORCH_EXTENSION_NAME is set)
// entry_points.cpp does, once it is known that the running torch is the one it was built for.
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <array>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "torch/aten/framework.h"
#include "torch/call_operator.h"

// Constructors that torch's headers call and that libstdc++.so has only since GCC 9
// (GLIBCXX_3.4.26). A library brings its own, so that it loads wherever torch does.
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
template std::basic_stringstream<char>::basic_stringstream();
#if !_GLIBCXX_USE_CXX11_ABI  // with the new strings libstdc++ is linked in
// And one since GCC 5, which a constructor of at::Tensor calls.
std::runtime_error::runtime_error(const char* what) : runtime_error(std::string(what)) {}
#endif

namespace fusedops::aten {
namespace {

// The last `count` values of torch's stack.
class AtenStack {
 public:
  using Guard = AtenGuard;

  AtenStack(const torch::jit::Stack& stack, std::size_t count)
      : values_(stack.data() + (stack.size() - count)) {}

  Tensor tensor(std::size_t i) const { return borrowed(values_[i].toTensor()); }
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
class BoxedOperator final : public c10::OperatorKernel {
 public:
  BoxedOperator(const Operator& op, bool into) : op_(op), into_(into) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    AtenTorch torch;
    const std::size_t count = op_.arguments + (into_ ? op_.results + 1 : 0);
    std::array<Tensor, kMostResults> results;
    AtenStack arguments(*stack, count);
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

void register_operators(torch::Library& library) {
  const auto add = [&](const Operator& op, const char* end, bool into) {
    auto kernel = c10::BoxedKernel::makeFromFunctor(std::make_unique<BoxedOperator>(op, into));
    library.impl((std::string(op.name) + end).c_str(),
                 torch::CppFunction::makeFromBoxedKernel(std::move(kernel)));
  };
  for (const Operator& op : operators()) {
    add(op, "", false);
    if (op.has_out) add(op, "_out", true);
  }
}

#if !defined(TORCH_EXTENSION_NAME)
TORCH_LIBRARY_IMPL(fusedops, FUSEDOPS_DISPATCH_KEY, library) { register_operators(library); }
#endif

}  // namespace fusedops::aten
