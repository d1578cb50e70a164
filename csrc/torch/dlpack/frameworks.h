// The frameworks whose arrays the entry points take, and torch's functions for its own.
//
// torch's tensors are made by the function that torch.compile's code calls, in 0.6 of the time of
// torch.empty_like. DLPack's allocator takes as long as that, and Tensor.record_stream has no
// effect on what it makes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torch/dlpack/array.h"

namespace fusedops::dlpack {

// The type of an object; null if it is no array. Throws Error for a subclass of torch.Tensor:
// its own way of running operators would be passed by.
const ArrayType* array_type_of(const char* name, PyObject* object);

// The name of a type, for an error message. Throws PythonError.
std::string type_name(PyTypeObject* type);

// That of torch.Tensor.
const ArrayType& torch_type();

// Whether an object is a torch.Tensor or a Parameter, of no subclass.
bool is_tensor(PyObject* object);

// Whether a TorchDispatchMode or forward-mode differentiation is active. They see the operators
// that the dispatcher runs, and so not this call.
bool mode_is_active();
// Whether torch.jit.trace, a profiler or a TorchFunctionMode is active. They see them too, but are
// not looked for at a call by type: each look takes a fiftieth of its time.
bool call_is_watched();
// Whether a transform of torch.func is active. Its own tensors have no memory to give; for others
// it makes no difference.
bool transform_is_active();
bool grad_is_enabled();
bool requires_grad(PyObject* tensor);
// Whether the memory of a tensor of torch's holds the negatives of its values, as in
// z.conj().imag. Such a view has strides, unless it has one element.
bool is_negative_view(const Tensor& tensor);
// Whether a tensor of torch's has no version counter. torch lets it be written in inference mode.
bool is_inference(PyObject* tensor);
bool inference_mode_is_enabled();
// Bumps the version of a tensor that was written, so that torch notices if it was saved for a
// gradient.
void increment_version(PyObject* tensor);

// A tensor on the current GPU, of the prototype's shape and strides.
Object torch_empty(const DLTensor& prototype, DType dtype);

// Imports what is needed of torch; the module does it once. Throws PythonError.
void import_torch();

}  // namespace fusedops::dlpack
