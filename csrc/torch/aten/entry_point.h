// An entry point by type (bias_gelu_fp16 …) as Python calls it: from Python's objects to values for
// torch, and back to objects.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/typed.h"
#include "torch/read_value.h"

// torch.Tensor. Declared in torch/csrc/autograd/python_variable.h, which includes all of ATen.
extern PyObject* THPVariableClass;

namespace fusedops::typed {

namespace py = pybind11;

inline bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

// The address of a tensor's at::TensorImpl.
inline void* impl_of(PyObject* tensor) {
  static PyObject* const cdata = PyUnicode_InternFromString("_cdata");
  const auto number = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, cdata));
  if (!number) throw py::error_already_set();
  void* impl = PyLong_AsVoidPtr(number.ptr());
  if (impl == nullptr) throw py::error_already_set();
  return impl;
}

// Reads a value of `kind`. Returns false if the object has another type; a TypeError may be set
// then.
inline bool read(Kind kind, PyObject* object, Value& value) {
  if (kind != Kind::tensor) return read_value(kind, object, value);
  if (!is_tensor(object)) return false;
  value.tensor = impl_of(object);
  return true;
}

// The value of an argument of the entry point named `of`.
inline Value value_of(const std::string& of, const Argument& argument, PyObject* object) {
  Value value{};
  if (object == Py_None && argument.optional) {
    value.is = Value::Is::none;
    return value;
  }
  value.is = Value::Is::given;
  if (read(argument.kind, object, value)) return value;
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
  throw py::type_error(of + ": " + argument.name + ": expected " + described(argument.kind) +
                       (argument.optional ? " or None" : "") + ", found " +
                       Py_TYPE(object)->tp_name);
}

class EntryPoint {
 public:
  EntryPoint(const Operator& op, const Type& type)
      : op_(op), type_(type), name_(std::string(op.name) + "_" + type.suffix) {
    py::list names;
    for (const Argument& argument : op.arguments) {
      // Python interns the names in a call, so an interned name is found by its address.
      names.append(py::reinterpret_steal<py::str>(PyUnicode_InternFromString(argument.name)));
      if (!argument.keyword_only) ++positional_;
      takes_out_ &= !argument.written;
    }
    names_ = py::tuple(names);
  }

  const std::string& name() const { return name_; }

  py::object operator()(const py::args& args, const py::kwargs& keywords) const {
    if (args.size() > positional_) refuse_more(args.size());
    Value values[kMostArguments];
    const py::object out = takes_out_ ? out_of(keywords) : py::object();
    if (out && !out.is_none()) return in_python()(*args, **keywords);
    std::size_t named = out ? 1 : 0;
    for (std::size_t i = 0; i < op_.arguments.size(); ++i) {
      const Argument& argument = op_.arguments[i];
      PyObject* object = i < args.size() ? PyTuple_GET_ITEM(args.ptr(), i) : nullptr;
      if (PyObject* found = look_up(keywords, i)) {
        if (object) refuse("got multiple values for argument", argument.name);
        object = found;
        ++named;
      }
      if (!object && !argument.has_default) refuse("missing required argument:", argument.name);
      values[i] = object ? value_of(name_, argument, object) : Value{};
    }
    if (named < keywords.size()) refuse_unknown(keywords);
    const Output output = call(op_, type_, values);
    return output.refused ? in_python()(*args, **keywords) : results_of(output);
  }

 private:
  // The entry point of this name in Python, which knows the rules of out= and has the words for
  // arguments that are refused.
  py::object in_python() const {
    return py::module_::import("fusedops.typed").attr("entry_point")(name_, py::none());
  }

  PyObject* look_up(const py::kwargs& keywords, std::size_t i) const {
    if (keywords.empty()) return nullptr;
    return PyDict_GetItemWithError(keywords.ptr(), PyTuple_GET_ITEM(names_.ptr(), i));
  }

  // The argument out=, which the schema does not have; null if it is not given.
  static py::object out_of(const py::kwargs& keywords) {
    return keywords && keywords.contains("out") ? py::object(keywords["out"]) : py::object();
  }

  // A tensor, a tuple of several, or None.
  static py::object results_of(const Output& output) {
    py::tuple results(output.count);
    bool failed = false;
    for (std::size_t i = 0; i < output.count; ++i) {
      failed |= output.tensors[i] == nullptr;
      PyTuple_SET_ITEM(results.ptr(), i, output.tensors[i]);  // steals the reference
    }
    if (failed) throw py::error_already_set();
    if (output.count == 0) return py::none();
    return output.count == 1 ? py::object(results[0]) : results;
  }

  // The errors that Python itself gives for a call that does not match the signature.
  [[noreturn]] void refuse(const std::string& why, const std::string& argument) const {
    throw py::type_error(name_ + "() " + why + " '" + argument + "'");
  }

  [[noreturn]] void refuse_more(std::size_t given) const {
    throw py::type_error(name_ + "() takes " + std::to_string(positional_) +
                         " positional arguments but " + std::to_string(given) + " were given");
  }

  void refuse_unknown(const py::kwargs& keywords) const {
    for (const auto& [name, unused] : keywords) {
      if (takes_out_ && name.equal(py::str("out"))) continue;
      if (!names_.contains(name)) refuse("got an unexpected keyword argument", py::str(name));
    }
  }

  const Operator& op_;
  const Type& type_;
  std::string name_;
  py::tuple names_;
  std::size_t positional_ = 0;
  bool takes_out_ = true;  // it writes to no argument
};

}  // namespace fusedops::typed
