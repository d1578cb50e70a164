// Registers the operators for the CUDA key through libtorch's C++ API, and defines their entry
// points by type. Their schemas are defined in Python, in fusedops/schemas.py.
#include "torch/aten/typed.h"

#include <c10/core/GradMode.h>
#include <torch/library.h>
#include <torch/version.h>

#include <exception>

#include "torch/aten/bias_act.h"
#include "torch/aten/vector_add.h"

// Of torch/csrc/autograd/python_variable.h and torch/csrc/Exceptions.h, which would bring Python.h.
_object* THPVariable_Wrap(const at::TensorBase& tensor);
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace fusedops::typed {
namespace {

at::Tensor to_torch(Input input) {
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(static_cast<c10::TensorImpl*>(input.impl)));
}
double to_torch(double number) { return number; }
std::string to_torch(const char* text) { return text ? text : "None"; }

bool wants_gradient(const at::Tensor& tensor) { return tensor.requires_grad(); }
template <class Other>
bool wants_gradient(const Other&) {
  return false;
}

std::string name_of(const Entry& entry) { return std::string(entry.op) + "_" + entry.type.suffix; }

// Without the dispatcher there is no choice by type, and no gradient.
template <class... Arguments>
void check(const Entry& entry, const at::Tensor& first, const Arguments&... rest) {
  const auto scalar = first.scalar_type();
  if (dtype_of(scalar) != entry.type.dtype) {
    fail(name_of(entry).c_str(), entry.argument, std::string("dtype ") + entry.type.name,
         dtype_name_of(scalar));
  }
  if (c10::GradMode::is_enabled() && (wants_gradient(first) || ... || wants_gradient(rest))) {
    throw Error(name_of(entry) + ": has no gradient; call fusedops." + entry.op +
                ", or call this one under torch.no_grad()");
  }
}

template <class Op, class... Arguments>
at::Tensor checked_call(const Entry& entry, Op op, const Arguments&... arguments) {
  check(entry, arguments...);
  return op(arguments...);
}

template <class Op, class... Arguments>
Output call(const Entry& entry, Op op, Arguments... arguments) {
  try {
    return {THPVariable_Wrap(checked_call(entry, op, to_torch(arguments)...))};
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return {nullptr};
  }
}

}  // namespace

const char* torch_release() {
  return C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR);
}

// Not TORCH_LIBRARY_IMPL: that registers at load, before anyone has asked whether this is the torch
// it was built for.
void register_operators() {
  static torch::Library m(torch::Library::IMPL, "fusedops", c10::DispatchKey::CUDA, __FILE__,
                          __LINE__);
  register_vector_add(m);
  register_bias_act(m);
}

Output vector_add(const Entry& entry, Input a, Input b, double gamma) {
  return call(entry, &VectorAdd<AtenApi>::vector_add, a, b, gamma);
}

Output bias_add(const Entry& entry, Input x, Input bias) {
  return call(entry, &BiasAct<AtenApi>::bias_add, x, bias);
}

Output bias_relu(const Entry& entry, Input x, Input bias) {
  return call(entry, &BiasAct<AtenApi>::bias_relu, x, bias);
}

Output bias_gelu(const Entry& entry, Input x, Input bias, const char* approximate) {
  return call(entry, &BiasAct<AtenApi>::bias_gelu, x, bias, approximate);
}

}  // namespace fusedops::typed
