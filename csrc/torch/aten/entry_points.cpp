// torch's side of the extension module. library.cpp is compiled with this file, as one unit.
#include "torch/aten/entry_points.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/version.h>

#include <exception>

#include "families/call.h"
#include "torch/aten/framework.h"

// Declared in torch/csrc/autograd/python_variable.h and torch/csrc/Exceptions.h, which include
// Python.h.
_object* THPVariable_Wrap(const at::TensorBase& tensor);
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace fusedops::aten {

const char* torch_release() {
  return C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR);
}

// TORCH_LIBRARY_IMPL would register when the module is loaded: before module.cpp has checked that
// the running torch is the one it was built for.
void register_operators() {
  constexpr c10::DispatchKey key = c10::DispatchKey::FUSEDOPS_DISPATCH_KEY;
  static torch::Library library(torch::Library::IMPL, "fusedops", key, __FILE__, __LINE__);
  register_operators(library);
}

Tensor borrowed(void* impl) {
  try {
    return borrowed(of_impl(impl));
  } catch (const c10::Error& error) {
    throw Refused(error.what_without_backtrace());
  }
}

bool call(const char* name, const Operator& op, int gpu, const Value* values, const Tensor* outs,
          Tensor* results) {
  try {
    AtenTorch torch;
    const AtenGuard current(gpu);
    const at::AutoDispatchBelowAutograd no_gradient;
    const Call call(name, torch, outs, op.results);
    op.call(values, results);
    return true;
  } catch (const Error&) {
    throw;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

_object* object_of(const Tensor& tensor) { return THPVariable_Wrap(of_torch(tensor)); }

}  // namespace fusedops::aten
