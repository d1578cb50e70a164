// The entry points by type (bias_gelu_fp16 …) between Python and torch. No header of either, so
// that what meets torch is compiled once for all Pythons, and what meets Python once for all
// torches; and no std::string, which is another type in torch 2.6.
#pragma once

#include "kernels/types.h"

struct _object;  // CPython's PyObject

namespace fusedops::typed {

// A tensor of Python's, by the address of its at::TensorImpl; the caller keeps it alive.
struct Input {
  void* impl;
};

// A new reference to a tensor of Python's; null where a Python exception is set.
struct Output {
  _object* tensor;
};

// An element type as a name ends with it, and as torch names it.
struct Type {
  const char* suffix;  // "fp16"
  DType dtype;
  const char* name;  // "float16"
};

// An entry point: an operator for one type, which its first tensor, `argument`, must have.
struct Entry {
  const char* op;
  const char* argument;
  Type type;
};

// The minor of torch this was built for, e.g. "2.11".
const char* torch_release();
// Registers the kernels of all operators with torch's dispatcher.
void register_operators();

Output vector_add(const Entry& entry, Input a, Input b, double gamma);
Output bias_add(const Entry& entry, Input x, Input bias);
Output bias_relu(const Entry& entry, Input x, Input bias);
Output bias_gelu(const Entry& entry, Input x, Input bias, const char* approximate);

}  // namespace fusedops::typed
