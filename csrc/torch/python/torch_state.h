// What torch's Python functions say of its state and of tensors. They are the same in every torch,
// and a call without arguments takes some 30 ns.
#pragma once

#include "torch/python/object.h"

namespace fusedops::python {

// Imports what is needed of torch; a module does it once. Throws PythonError.
void import_torch();

extern PyTypeObject *tensor_type, *parameter_type;

// Whether an object is a torch.Tensor or a Parameter, of no subclass: a subclass has its own way
// of running operators.
inline bool is_tensor(PyObject* object) {
  return Py_TYPE(object) == tensor_type || Py_TYPE(object) == parameter_type;
}

// Whether a TorchDispatchMode or forward-mode differentiation is active. They see the operators
// that the dispatcher runs, and so not a call past it.
bool mode_is_active();
// Whether torch.jit.trace, a profiler or a TorchFunctionMode is active. They see them too, but are
// not looked for at a call by type: each look takes a fiftieth of its time.
bool call_is_watched();
bool grad_is_enabled();
bool inference_mode_is_enabled();

bool requires_grad(PyObject* tensor);
// Whether the memory of a tensor holds the negatives of its values, as in z.conj().imag.
bool is_negative_view(PyObject* tensor);
// Whether a tensor has no version counter. torch lets it be written in inference mode.
bool is_inference(PyObject* tensor);
// Bumps the version of a tensor that was written, so that torch notices if it was saved for a
// gradient.
void increment_version(PyObject* tensor);

}  // namespace fusedops::python
