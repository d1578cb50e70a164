// torch's side of the extension module: registers the families' operators, and calls a kernel for
// an entry point by type. library.cpp is compiled with this file, as one unit: torch's headers take
// seconds to read.
#include "torch/aten/typed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "families/checks.h"
#include "torch/aten/library.h"
#include "torch/types.h"

// Declared in torch/csrc/autograd/python_variable.h and torch/csrc/Exceptions.h, which include
// Python.h.
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

// What the entry points need to know of an operator is read from its schema.

std::optional<Kind> kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Kind::tensor;
    case c10::TypeKind::FloatType:
      return Kind::number;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return Kind::integer;
    case c10::TypeKind::BoolType:
      return Kind::flag;
    case c10::TypeKind::StringType:
      return Kind::text;
    default:
      return std::nullopt;
  }
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// The names point into the schema, which must outlive them. Returns nothing for a schema with other
// kinds of arguments or with too many.
std::optional<std::vector<Argument>> arguments_of(const c10::FunctionSchema& schema) {
  std::vector<Argument> arguments;
  for (const c10::Argument& from : schema.arguments()) {
    const auto optional = from.real_type()->cast<c10::OptionalType>();
    const auto kind = kind_of(optional ? *optional->getElementType() : *from.real_type());
    if (!kind) return std::nullopt;
    arguments.push_back({from.name().c_str(), *kind, optional != nullptr, from.kwarg_only(),
                         from.default_value().has_value(), writes(from)});
  }
  if (arguments.size() > kMostArguments) return std::nullopt;
  return arguments;
}

// Whether all results are tensors, and no more than an Output holds.
bool gives_tensors(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return results.size() <= kMostResults &&
         std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.type()->kind() == c10::TypeKind::TensorType;
         });
}

// The signature as Python writes it. An operator that writes to no argument takes out= too.
std::string signature_of(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  const char* between = "(";
  bool keyword_only = false;
  for (const c10::Argument& argument : schema.arguments()) {
    text << between;
    if (argument.kwarg_only() && !keyword_only) text << "*, ";
    keyword_only = argument.kwarg_only();
    text << argument.name();
    if (argument.default_value()) {
      argument.default_value()->repr(text << "=", [](auto&, const auto&) { return false; });
    }
    between = ", ";
  }
  const auto& arguments = schema.arguments();
  if (std::none_of(arguments.begin(), arguments.end(), writes)) {
    text << (keyword_only ? ", out=None" : ", *, out=None");
  }
  text << ")";
  return text.str();
}

constexpr c10::DispatchKey kKey = c10::DispatchKey::CUDA;

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

Kernel kernel_of(const BoxedOperator& registered) {
  const std::string name = "fusedops::" + registered.name;
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  const auto& schema = handle.schema();
  return {registered.name, registered.kernel, handle, schema, signature_of(schema)};
}

std::optional<Operator> operator_of(const Kernel& kernel) {
  for (const char* end : {"_backward", "_out", "_"}) {
    if (ends_with(kernel.name, end)) return std::nullopt;
  }
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

std::vector<Operator> operators_of(const std::vector<BoxedOperator>& all) {
  static std::deque<Kernel> kernels;  // a deque does not move its elements
  std::vector<Operator> operators;
  for (const BoxedOperator& one : all) {
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
    case Kind::dtype:  // no such operator has entry points (kind_of)
      break;
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

// The dispatcher is bypassed, so the type is checked here, and a tensor without strides is refused.
// So is a gradient, of either mode: torch would drop it. So is a view whose memory holds the
// negatives of its values (z.conj().imag): the dispatcher would resolve it.
void check(const Operator& op, const Type& type, const torch::jit::Stack& stack) {
  const auto name = [&] { return std::string(op.name) + "_" + type.suffix; };
  for (const c10::IValue& value : stack) {
    if (!value.isTensor()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.is_nested() || tensor.layout() != c10::kStrided) throw Refused(name());
  }
  if (dtype_of(stack[op.first].toTensor().scalar_type()) != type.dtype) throw Refused(name());
  if (c10::GradMode::is_enabled() && std::any_of(stack.begin(), stack.end(), wants_gradient)) {
    throw Error(name() + ": has no gradient; call fusedops." + op.name +
                ", or call this one under torch.no_grad()");
  }
  for (const c10::IValue& value : stack) {
    if (!value.isTensor()) continue;
    if (value.toTensor().is_neg()) {
      throw Error(name() +
                  ": expected a tensor's own values, found a view of their negatives; call "
                  "resolve_neg()");
    }
    if (value.toTensor()._fw_grad(0).defined()) {
      throw Error(name() + ": has no derivative in forward mode; call fusedops." + op.name);
    }
  }
}

void add(Output& output, const at::Tensor& tensor) {
  output.tensors[output.count++] = THPVariable_Wrap(tensor);
}

// Bumps the tensor's version, so that torch notices if an operator has saved it for its gradient.
void add_written(Output& output, const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  add(output, tensor);
}

}  // namespace

const char* torch_release() {
  return C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR);
}

// TORCH_LIBRARY_IMPL would register when the module is loaded: before module.cpp has checked that
// the running torch is the one it was built for.
const std::vector<Operator>& register_operators() {
  static torch::Library library(torch::Library::IMPL, "fusedops", kKey, __FILE__, __LINE__);
  const std::vector<BoxedOperator> all = boxed_operators();
  for (const BoxedOperator& op : all) {
    library.impl(op.name.c_str(), torch::CppFunction::makeFromBoxedKernel(op.kernel));
  }
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
  } catch (const Refused&) {
    output.refused = true;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    output = {{nullptr}, 1, false};
  }
  return output;
}

}  // namespace fusedops::typed
