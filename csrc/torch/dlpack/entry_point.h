// An entry point of the module: how a call from Python gets to an operator.
#pragma once

#include <string>
#include <vector>

#include "torch/dlpack/array.h"
#include "torch/entry_points.h"

namespace fusedops::dlpack {

struct Argument {
  PyObject* name;  // interned: Python interns the names in a call, so most are equal by address
  std::string text;
  bool optional;  // takes None
  bool keyword_only;
  bool has_default;
  Value value;  // by default
  std::string default_text;
};

struct EntryPoint {
  std::string name;
  std::string op;
  std::string help;
  const typed::Type* type;  // null: any, of a direct call
  bool over_arguments;      // a result may replace an argument of its shape
  const Operator& native;
  std::vector<Argument> arguments;
  std::size_t positional;  // so many can be given by position
  PyObject* slow;          // by type: the same in Python, through the dispatcher
  PyMethodDef method;
};

// A call from Python, in the form of METH_FASTCALL.
struct PythonCall {
  PyObject* const* args;
  std::size_t count;
  PyObject* names;
};

// The functions throw what module.cpp makes an exception of Python.

// A call by type. What it cannot take it refuses in words; what the operator refuses, `slow` does.
Object call_by_type(const EntryPoint& of, const PythonCall& given);

// A direct call: NotImplemented for what only the dispatcher can take, or can refuse.
Object call_directly(const EntryPoint& of, const PythonCall& given);

// Raises TypeError: `object` is not of the kind that the argument takes.
[[noreturn]] void refuse_value(const EntryPoint& of, const std::string& argument, bool optional,
                               Kind kind, PyObject* object);

}  // namespace fusedops::dlpack
