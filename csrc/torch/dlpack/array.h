// Arrays of Python's frameworks through DLPack's C exchange API, for the entry points by type. They
// know no ABI of torch and no version of Python, so one file serves all of both.
#pragma once

#include <Python.h>
// A header of torch >= 2.10 that includes nothing of torch.
#include <ATen/dlpack.h>

#include <cstdint>
#include <utility>

#include "families/checks.h"
#include "families/framework.h"

namespace fusedops {

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

namespace dlpack {

// The type of a framework's arrays, and its functions.
struct ArrayType {
  PyTypeObject* type;
  const DLPackExchangeAPI* api;
  bool torch;
};

// The framework's view of an array's memory. Throws PythonError if the framework refuses.
DLTensor memory_of(const ArrayType& type, PyObject* array);
// A tensor over it. Its object is the array, which the caller keeps alive.
Tensor borrowed(const DLTensor& memory, PyObject* array);
inline PyObject* array_of(const Tensor& tensor) { return static_cast<PyObject*>(tensor.object()); }

// Whether two arrays lie in the same bytes in part, from their first to their last.
bool share_memory(const TensorView& a, const TensorView& b);
// Whether they are contiguous, of one dtype and shape, and in the same memory.
bool same_memory(const TensorView& a, const TensorView& b);

// The framework of a call: results are arrays of its first argument's type, on its device.
class Arrays final : public Framework {
 public:
  // `name` is the entry point's.
  Arrays(const char* name, const ArrayType& type, const DLDevice& device);
  Arrays(const Arrays&) = delete;
  ~Arrays();

  Tensor allocate(const Tensor& like, const TensorView& wanted) override;
  Tensor allocate_bytes(const Tensor& like, std::int64_t count) override;
  Tensor contiguous(const Tensor& tensor) override;
  Tensor clone(const Tensor& tensor) override;
  gpu::Stream current_stream(int gpu) override;

 private:
  // A new array, made by the framework's allocator.
  Tensor allocated(DLTensor prototype) const;
  // What a tensor of torch's returns from a method without arguments.
  Tensor method(const Tensor& tensor, const char* name, const char* expected) const;

  const char* const name_;
  const ArrayType& type_;
  const DLDevice device_;
  int gpu_before_ = -1;  // the current one, if it was another
};

}  // namespace dlpack

}  // namespace fusedops
