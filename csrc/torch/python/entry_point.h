// An entry point, and how a call of it from Python gets to an operator past torch's dispatcher:
// the same for every kind of module.
//
// There are entry points by type (bias_gelu_fp16 …), and direct calls, of all types. A call that
// only the dispatcher can take, or that is wrong, is refused: one by type then calls the entry
// point of that name in Python, which takes it or has the words for it; a direct call gives
// NotImplemented.
#pragma once

#include <string>
#include <vector>

#include "families/registrar.h"
#include "torch/python/object.h"

namespace fusedops::python {

// An element type that entry points are made for.
struct TypeSuffix {
  const char* suffix;  // "fp16"
  DType dtype;
  const char* name;  // torch's: "float16"
};

constexpr TypeSuffix kTypes[] = {{"fp32", DType::float32, "float32"},
                                 {"fp16", DType::float16, "float16"},
                                 {"bf16", DType::bfloat16, "bfloat16"},
                                 {"fp64", DType::float64, "float64"}};

// A parameter in the operator's schema.
struct SchemaParameter {
  PyObject* name;  // interned: Python interns the names in a call, so most are equal by address
  bool optional;   // takes None
  bool keyword_only;
  bool has_default;
  bool written;  // the operator writes to the tensor
  Value value;   // by default
  std::string default_text;
};

struct EntryPoint {
  std::string name;
  std::string help;
  const TypeSuffix* type;  // null: any, of a direct call
  bool over_arguments;     // a result may replace an argument of its shape
  const Operator& native;
  std::vector<SchemaParameter> parameters;
  std::size_t positional;  // so many can be given by position
  std::size_t written;     // so many are written; such an operator takes no out=
  PyObject* python;        // the entry point in Python; null for a direct call
  PyMethodDef method;
  PyModuleDef owner;
};

// A call from Python, in the form of METH_FASTCALL.
struct PythonCall {
  PyObject* const* args;
  std::size_t count;
  PyObject* names;
};

// The arrays of one call, and the framework that made them.
class Arrays {
 public:
  // Whether an object that is no tensor of torch's is an array.
  virtual bool takes(PyObject* object) = 0;
  // A tensor over an array's memory. The caller keeps the array alive. Throws Refused for a tensor
  // of torch's whose memory or strides cannot be had, PythonError for another array.
  virtual Tensor borrow(PyObject* array) = 0;
  // Calls the operator on the GPU of `first`, the first of what `borrow` returned. `outs`: arrays
  // of the caller for the results, or null: they are new, of the first one's kind.
  virtual void call(const EntryPoint& of, const Tensor& first, const Value* values,
                    const Tensor* outs, Tensor* results) = 0;
  virtual Object object_of(const Tensor& result) = 0;

 protected:
  ~Arrays() = default;
};

// Calls it with the module's kind of Arrays: each module defines this. Throws PythonError, or
// an exception of the standard library's for a RuntimeError.
Object call(const EntryPoint& of, const PythonCall& given);
Object call_with(Arrays& arrays, const EntryPoint& of, const PythonCall& given);

// Reads an argument that is no tensor. Returns false if the object has another type; an error may
// be set then.
bool read_value(Kind kind, PyObject* object, Value& value);

// The module's functions: entry_point(op, suffix, parameters, results, over_arguments, help,
// python) makes an entry point. typed.py says what these are.
extern PyMethodDef module_functions[];

}  // namespace fusedops::python
