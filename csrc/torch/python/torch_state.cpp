#include "torch/python/torch_state.h"

namespace fusedops::python {
namespace {

// Objects of torch's that live as long as the process.
struct TorchNames {
  PyObject* is_grad_enabled;
  PyObject* dispatch_modes;  // how many TorchDispatchModes are active
  PyObject* function_mode;   // whether a TorchFunctionMode is active
  PyObject* profiler;        // whether one is
  PyObject* tracing;         // whether torch.jit.trace is
  PyObject* forward_ad;      // the names of torch.autograd.forward_ad
  PyObject* level;           // of them: the level of its tangents, -1 without any
  PyObject* increment_version;
  PyObject* inference_mode;  // whether it is enabled
  PyObject* is_inference;    // the tensor's method
  PyObject* is_neg;          // the tensor's method
  PyObject* requires_grad;   // the attribute's name
};

TorchNames torch;

}  // namespace

PyTypeObject *tensor_type = nullptr, *parameter_type = nullptr;

void import_torch() {
  const Object module(checked(PyImport_ImportModule("torch")));
  const Object c(attribute(module.get(), "_C")), nn(attribute(module.get(), "nn"));
  PyObject* const tensor = attribute(module.get(), "Tensor");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor);
  parameter_type = reinterpret_cast<PyTypeObject*>(attribute(nn.get(), "Parameter"));
  torch.is_inference = attribute(tensor, "is_inference");
  torch.is_neg = attribute(tensor, "is_neg");
  torch.is_grad_enabled = attribute(module.get(), "is_grad_enabled");
  torch.dispatch_modes = attribute(c.get(), "_len_torch_dispatch_stack");
  torch.function_mode = attribute(c.get(), "_is_torch_function_mode_enabled");
  const Object autograd(attribute(c.get(), "_autograd"));
  torch.profiler = attribute(autograd.get(), "_profiler_enabled");
  torch.tracing = attribute(c.get(), "_is_tracing");
  const Object forward_ad(checked(PyImport_ImportModule("torch.autograd.forward_ad")));
  torch.forward_ad = attribute(forward_ad.get(), "__dict__");
  torch.level = checked(PyUnicode_InternFromString("_current_level"));
  torch.increment_version = attribute(c.get(), "_increment_version");
  torch.inference_mode = attribute(module.get(), "is_inference_mode_enabled");
  torch.requires_grad = checked(PyUnicode_InternFromString("requires_grad"));
}

bool mode_is_active() {
  PyObject* const level = checked(PyDict_GetItemWithError(torch.forward_ad, torch.level));
  return PyLong_AsLong(level) >= 0 || PyLong_AsLong(called(torch.dispatch_modes).get()) != 0;
}

bool call_is_watched() {
  return is_true(called(torch.function_mode)) || is_true(called(torch.tracing)) ||
         is_true(called(torch.profiler));
}

bool grad_is_enabled() { return is_true(called(torch.is_grad_enabled)); }

bool inference_mode_is_enabled() { return is_true(called(torch.inference_mode)); }

bool requires_grad(PyObject* tensor) {
  return is_true(Object(checked(PyObject_GetAttr(tensor, torch.requires_grad))));
}

bool is_negative_view(PyObject* tensor) { return is_true(called(torch.is_neg, tensor)); }

bool is_inference(PyObject* tensor) { return is_true(called(torch.is_inference, tensor)); }

void increment_version(PyObject* tensor) {
  const Object tensors(checked(PyTuple_Pack(1, tensor)));
  called(torch.increment_version, tensors.get());
}

}  // namespace fusedops::python
