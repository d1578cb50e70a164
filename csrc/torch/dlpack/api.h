// The Api (torch/api.h) of the entry points by type: Python's arrays through DLPack's C exchange
// API. It knows no ABI of torch and no version of Python, so one file serves all of both.
#pragma once

#include <Python.h>
// A header of torch >= 2.10 that includes nothing of torch.
#include <ATen/dlpack.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/validate.h"

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

// A framework's arrays.
struct Framework {
  PyTypeObject* type;
  const DLPackExchangeAPI* api;
  bool torch;
};

// An array: its Python object, and views of its memory, the framework's and ours.
class Array {
 public:
  // Throws PythonError if the framework refuses.
  Array(const Framework& framework, Object object);

  const Framework& framework() const { return *framework_; }
  const Object& object() const { return object_; }
  const DLTensor& theirs() const { return theirs_; }
  const TensorView& view() const { return view_; }

 private:
  const Framework* framework_;
  Object object_;
  DLTensor theirs_;
  TensorView view_;
};

// What the Api needs to know of the call that this thread is in: current_call.
struct Call {
  const char* name;            // of the entry point
  const Framework& framework;  // of the first array: results are its arrays
  DLDevice device;
  const Array* outs;  // where the caller wants the results; null: in new arrays
  int next_out = 0;
};

Call*& current_call();

// Whether two arrays lie in the same bytes in part, from their first to their last.
bool share_memory(const Array& a, const Array& b);
// Whether they are contiguous, of one dtype and shape, and in the same memory.
bool same_memory(const Array& a, const Array& b);
Array contiguous(const Array& array);
Array clone(const Array& array);
Array empty_like(const Array& array);
Array empty(const Array& like, const std::vector<std::int64_t>& sizes, DType dtype);
Array empty_bytes(const Array& like, std::int64_t count);

}  // namespace dlpack

struct Api {
  using Tensor = dlpack::Array;

  class Guard {
   public:
    explicit Guard(int gpu) : gpu_(gpu), before_(make_current(gpu)) {}
    Guard(const Guard&) = delete;
    ~Guard() {
      if (before_ != gpu_) {
        // The GPU was current before, so that it can be again; a destructor has nobody to tell.
        int now = 0;
        FUSEDOPS_KERNEL((Gpu{gpu_, nullptr}), make_current)(before_, now);
      }
    }

   private:
    static int make_current(int gpu) {
      int before = gpu;
      const Gpu on{gpu, nullptr};
      check_launch("fusedops", on, FUSEDOPS_KERNEL(on, make_current)(gpu, before));
      return before;
    }

    const int gpu_;
    const int before_;
  };

  static const TensorView& view(const Tensor& tensor) { return tensor.view(); }
  static Tensor contiguous(const Tensor& tensor) { return dlpack::contiguous(tensor); }
  static Tensor clone(const Tensor& tensor) { return dlpack::clone(tensor); }
  static Tensor empty_like(const Tensor& tensor) { return dlpack::empty_like(tensor); }
  static Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype) {
    return dlpack::empty(like, sizes, dtype);
  }
  static Tensor empty_bytes(const Tensor& like, std::int64_t count) {
    return dlpack::empty_bytes(like, count);
  }
  static void* data(const Tensor& tensor) { return tensor.view().data; }

  static gpu::Stream current_stream(int gpu) {
    const dlpack::Call& call = *dlpack::current_call();
    gpu::Stream stream = nullptr;
    if (call.framework.api->current_work_stream(call.device.device_type, gpu, &stream) != 0) {
      throw PythonError();
    }
    return stream;
  }
};

}  // namespace fusedops
