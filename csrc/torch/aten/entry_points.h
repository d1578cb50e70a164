// torch's side of the extension module, for its Python side (module.cpp). It includes no header of
// either, so that the torch side is compiled once for all Pythons and the Python side once for all
// torches with the same std::string.
#pragma once

#include "families/registrar.h"

struct _object;  // CPython's PyObject

namespace fusedops::aten {

// The torch minor that this was built for, e.g. "2.11".
const char* torch_release();
// Registers the kernels of all operators with torch's dispatcher.
void register_operators();
// A tensor by the address of its at::TensorImpl, which the caller keeps alive. Throws Refused for
// one without strides or memory.
Tensor borrowed(void* impl);
// Calls the operator on a GPU, without the dispatcher. `outs`: for the results, or null. Returns
// false if a Python exception is set.
bool call(const char* name, const Operator& op, int gpu, const Value* values, const Tensor* outs,
          Tensor* results);
// A new reference to its torch.Tensor; null if a Python exception is set.
_object* object_of(const Tensor& tensor);

}  // namespace fusedops::aten
