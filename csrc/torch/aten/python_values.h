// From Python's objects to values for torch, with errors in the words of the operators' checks.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/typed.h"

// torch.Tensor; of torch/csrc/autograd/python_variable.h, which would bring all of ATen.
extern PyObject* THPVariableClass;

namespace fusedops::typed {

namespace py = pybind11;

inline bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

inline const char* described(Kind kind) {
  switch (kind) {
    case Kind::tensor:
      return "a torch.Tensor";
    case Kind::number:
      return "a float";
    case Kind::integer:
      return "an int";
    case Kind::flag:
      return "a bool";
    case Kind::text:
      return "a str";
  }
  return "";
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

// Fills in a value of `kind`; false if the object is of another, maybe with a TypeError set.
inline bool read(Kind kind, PyObject* object, Value& value) {
  switch (kind) {
    case Kind::tensor:
      if (!is_tensor(object)) return false;
      value.tensor = impl_of(object);
      return true;
    case Kind::number:
      value.number = PyFloat_AsDouble(object);
      return value.number != -1.0 || !PyErr_Occurred();
    case Kind::integer:
      value.integer = PyLong_AsLongLong(object);
      return value.integer != -1 || !PyErr_Occurred();
    case Kind::flag:
      value.flag = object == Py_True;
      return PyBool_Check(object);
    case Kind::text:
      value.text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
      return value.text != nullptr;
  }
  return false;
}

// The value of an argument of the entry point `of`.
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

}  // namespace fusedops::typed
