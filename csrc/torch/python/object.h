// Python's objects in C++. Like all of torch/python it keeps to CPython's limited API, so that a
// module of that API can be made of it.
#pragma once

#include <Python.h>

#include <utility>

namespace fusedops::python {

// A Python exception is set.
struct PythonError {};

inline PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

// A reference to a Python object.
class Object {
 public:
  Object() = default;
  // Takes over a new reference.
  explicit Object(PyObject* object) : object_(object) {}
  Object(const Object& other) : object_(other.object_) { Py_XINCREF(object_); }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  static Object borrowed(PyObject* object) {
    Py_XINCREF(object);
    return Object(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A new reference.
inline PyObject* attribute(PyObject* of, const char* name) {
  return checked(PyObject_GetAttrString(of, name));
}

inline Object called(PyObject* function) { return Object(checked(PyObject_CallNoArgs(function))); }

inline Object called(PyObject* function, PyObject* argument) {
  return Object(checked(PyObject_CallFunctionObjArgs(function, argument, nullptr)));
}

inline bool is_true(const Object& object) { return object.get() != Py_False; }

// The tuple of count objects, the i-th of which is make(i).
template <class Make>
Object tuple_of(std::size_t count, const Make& make) {
  Object tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const object = Object(make(i)).release();
    if (PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), checked(object)) != 0) {
      throw PythonError();
    }
  }
  return tuple;
}

}  // namespace fusedops::python
