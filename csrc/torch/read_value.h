// Reads an argument of an entry point that is no tensor from its Python object. It keeps to
// CPython's limited API, so that both modules of entry points can include it.
#pragma once

#include <Python.h>

#include "torch/entry_points.h"

namespace fusedops::typed {

// Sets the member of `value` for the kind. Returns false if the object has another type, as it has
// for Kind::tensor; an error may be set then.
template <class Value>
bool read_value(Kind kind, PyObject* object, Value& value) {
  switch (kind) {
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
      value.text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, nullptr) : nullptr;
      return value.text != nullptr;
    case Kind::tensor:
    case Kind::dtype:
      break;
  }
  return false;
}

}  // namespace fusedops::typed
