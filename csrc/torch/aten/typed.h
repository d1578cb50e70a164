// The interface between the module's Python side (module.cpp) and its torch side (typed.cpp). It
// includes no header of either, so that the torch side is compiled once for all Pythons and the
// Python side once for all torches. No std::string crosses it: it is another type in torch 2.6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "torch/entry_points.h"

struct _object;  // CPython's PyObject

namespace fusedops::typed {

// An argument in the operator's schema.
struct Argument {
  const char* name;
  Kind kind;
  bool optional;  // takes None
  bool keyword_only;
  bool has_default;
  bool written;  // the operator writes to it
};

struct Kernel;  // torch's side of an operator

struct Operator {
  const char* name;
  const char* signature;  // for Python's help(): "(x, bias, *, approximate=\"tanh\")"
  std::vector<Argument> arguments;
  std::size_t first;  // index of the first tensor argument
  const Kernel* kernel;
};

// The value of an argument in a call.
struct Value {
  enum class Is { by_default, none, given } is;
  union {
    void* tensor;  // the address of its at::TensorImpl; the caller keeps it alive
    double number;
    std::int64_t integer;
    bool flag;
    const char* text;
  };
};

// New references to the results and to the tensors that were written to. A null pointer means that
// a Python exception is set.
struct Output {
  _object* tensors[kMostResults + kMostArguments];
  std::size_t count;
  bool refused;  // the operator does not take the arguments; there are no results
};

// The torch minor that this was built for, e.g. "2.11".
const char* torch_release();
// Registers the kernels of all operators with torch's dispatcher. Returns the operators that have
// entry points: not gradients, not in-place operators ("..._"), and only those whose arguments all
// have a Kind.
const std::vector<Operator>& register_operators();
// Calls an operator's kernel without the dispatcher. Its first tensor must have `type`.
Output call(const Operator& op, const Type& type, const Value* values);

}  // namespace fusedops::typed
