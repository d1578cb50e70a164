// The entry points by type (bias_gelu_fp16 …) between Python and torch. No header of either, so
// that what meets torch is compiled once for all Pythons, and what meets Python once for all
// torches; and no std::string, which is another type in torch 2.6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/types.h"

struct _object;  // CPython's PyObject

namespace fusedops::typed {

enum class Kind { tensor, number, integer, flag, text };

// An argument, as the operator's schema has it.
struct Argument {
  const char* name;
  Kind kind;
  bool optional;  // takes None
  bool keyword_only;
  bool has_default;
  bool written;  // the operator writes to it
};

constexpr std::size_t kMostArguments = 32, kMostResults = 8;

struct Kernel;  // torch's side of an operator

struct Operator {
  const char* name;
  const char* signature;  // for Python's help(): "(x, bias, *, approximate=\"tanh\")"
  std::vector<Argument> arguments;
  std::size_t first;  // which argument is the first tensor
  const Kernel* kernel;
};

// What an argument was given.
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

// New references to the results and to what was written to; a null where a Python exception is set.
struct Output {
  _object* tensors[kMostResults + kMostArguments];
  std::size_t count;
};

// An element type as a name ends with it, and as torch names it.
struct Type {
  const char* suffix;  // "fp16"
  DType dtype;
  const char* name;  // "float16"
};

// The minor of torch this was built for, e.g. "2.11".
const char* torch_release();
// Registers the kernels of all operators with torch's dispatcher. Returns the operators with entry
// points: those that are no gradient, do not end in "_" and whose schema has no other kinds.
const std::vector<Operator>& register_operators();
// Calls an operator's kernel without the dispatcher; its first tensor must be of `type`.
Output call(const Operator& op, const Type& type, const Value* values);

}  // namespace fusedops::typed
