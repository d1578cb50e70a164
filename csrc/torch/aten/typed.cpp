// Registers the operators for the CUDA key through libtorch's C++ API, and calls them for their
// entry points by type. Their schemas are defined in Python, in fusedops/schemas.py.
#include "torch/aten/typed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "torch/aten/blas.h"
#include "torch/aten/registrar.h"
#include "torch/aten/schema.h"
#include "torch/frontend/attention.h"
#include "torch/frontend/bias_act.h"
#include "torch/frontend/dequantize.h"
#include "torch/frontend/gated.h"
#include "torch/frontend/gemm.h"
#include "torch/frontend/layout.h"
#include "torch/frontend/norm.h"
#include "torch/frontend/residual.h"
#include "torch/frontend/rotary.h"
#include "torch/frontend/softmax.h"
#include "torch/frontend/vector_add.h"

// Of torch/csrc/autograd/python_variable.h and torch/csrc/Exceptions.h, which would bring Python.h.
_object* THPVariable_Wrap(const at::TensorBase& tensor);
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace fusedops::typed {

struct Kernel {
  std::string name;
  c10::BoxedKernel call;
  c10::OperatorHandle handle;
  c10::FunctionSchema schema;
  std::string signature;
};

namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::CUDA;

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

Kernel kernel_of(const Registered& registered) {
  const std::string name = "fusedops::" + registered.name;
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  const auto& schema = handle.schema();
  return {registered.name, registered.kernel, handle, schema, signature_of(schema)};
}

std::optional<Operator> operator_of(const Kernel& kernel) {
  if (ends_with(kernel.name, "_backward") || ends_with(kernel.name, "_")) return std::nullopt;
  auto arguments = arguments_of(kernel.schema);
  if (!arguments || !gives_tensors(kernel.schema)) return std::nullopt;
  const auto first = std::find_if(arguments->begin(), arguments->end(), [](const Argument& one) {
    return one.kind == Kind::tensor && !one.optional;
  });
  if (first == arguments->end()) return std::nullopt;
  const auto at = static_cast<std::size_t>(first - arguments->begin());
  return Operator{kernel.name.c_str(), kernel.signature.c_str(), std::move(*arguments), at,
                  &kernel};
}

std::vector<Operator> operators_of(const std::vector<Registered>& all) {
  static std::deque<Kernel> kernels;  // they stay where they are
  std::vector<Operator> operators;
  for (const Registered& one : all) {
    auto op = operator_of(kernels.emplace_back(kernel_of(one)));
    if (op) operators.push_back(std::move(*op));
  }
  return operators;
}

at::Tensor tensor_of(const Value& value) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(
      static_cast<c10::TensorImpl*>(value.tensor)));
}

c10::IValue to_torch(const Argument& argument, const Value& value) {
  switch (argument.kind) {
    case Kind::tensor:
      return tensor_of(value);
    case Kind::number:
      return value.number;
    case Kind::integer:
      return value.integer;
    case Kind::flag:
      return value.flag;
    case Kind::text:
      return std::string(value.text);
  }
  return {};
}

torch::jit::Stack stack_of(const Operator& op, const Value* values) {
  torch::jit::Stack stack;
  stack.reserve(op.arguments.size() + kMostResults);
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    switch (values[i].is) {
      case Value::Is::given:
        stack.push_back(to_torch(op.arguments[i], values[i]));
        break;
      case Value::Is::by_default:
        stack.push_back(*op.kernel->schema.arguments()[i].default_value());
        break;
      case Value::Is::none:
        stack.emplace_back();
    }
  }
  return stack;
}

bool wants_gradient(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().requires_grad();
}

// Without the dispatcher there is no choice by type, and no gradient.
void check(const Operator& op, const Type& type, const torch::jit::Stack& stack) {
  const auto name = [&] { return std::string(op.name) + "_" + type.suffix; };
  const auto scalar = stack[op.first].toTensor().scalar_type();
  if (dtype_of(scalar) != type.dtype) {
    fail(name().c_str(), op.arguments[op.first].name, std::string("dtype ") + type.name,
         dtype_name_of(scalar));
  }
  if (c10::GradMode::is_enabled() && std::any_of(stack.begin(), stack.end(), wants_gradient)) {
    throw Error(name() + ": has no gradient; call fusedops." + op.name +
                ", or call this one under torch.no_grad()");
  }
}

void add(Output& output, const at::Tensor& tensor) {
  output.tensors[output.count++] = THPVariable_Wrap(tensor);
}

// Torch is told, so that an operator that kept the tensor for its gradient finds out.
void add_written(Output& output, const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  add(output, tensor);
}

}  // namespace

const char* torch_release() {
  return C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR);
}

// Not TORCH_LIBRARY_IMPL: that registers at load, before anyone has asked whether this is the torch
// it was built for.
const std::vector<Operator>& register_operators() {
  static torch::Library library(torch::Library::IMPL, "fusedops", kKey, __FILE__, __LINE__);
  std::vector<Registered> all;
  const Registrar m(library, &all);
  VectorAdd<AtenApi>::register_with(m);
  BiasAct<AtenApi>::register_with(m);
  Gated<AtenApi>::register_with(m);
  Residual<AtenApi>::register_with(m);
  Norm<AtenApi>::register_with(m);
  Rotary<AtenApi>::register_with(m);
  Layout<AtenApi>::register_with(m);
  Dequantize<AtenApi>::register_with(m);
  Attention<AtenApi>::register_with(m);
  Softmax<AtenApi>::register_with(m);
  Gemm<AtenBlas>::register_with(m);
  static const std::vector<Operator> operators = operators_of(all);
  return operators;
}

Output call(const Operator& op, const Type& type, const Value* values) {
  Output output{};
  try {
    torch::jit::Stack stack = stack_of(op, values);
    check(op, type, stack);
    {
      const at::AutoDispatchBelowAutograd no_gradient;
      op.kernel->call.callBoxed(op.kernel->handle, c10::DispatchKeySet(kKey), &stack);
    }
    for (const c10::IValue& result : stack) add(output, result.toTensor());
    for (std::size_t i = 0; i < op.arguments.size(); ++i) {
      const bool written = op.arguments[i].written && values[i].is == Value::Is::given;
      if (written) add_written(output, tensor_of(values[i]));
    }
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    output = {{nullptr}, 1};
  }
  return output;
}

}  // namespace fusedops::typed
