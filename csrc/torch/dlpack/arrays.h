// Arrays of Python's frameworks through DLPack's C exchange API. It knows no ABI of torch and no
// version of Python, so one file serves all of both.
#pragma once

// A header of torch >= 2.10 that includes nothing of torch.
#include <ATen/dlpack.h>

#include <cstdint>

#include "families/framework.h"
#include "torch/python/entry_point.h"

namespace fusedops::dlpack {

using python::Object;

// The type of a framework's arrays, and its functions.
struct ArrayType {
  PyTypeObject* type;
  const DLPackExchangeAPI* api;
  bool torch;
};

// Imports what is needed of torch; the module does it once. Throws python::PythonError.
void import_torch();

// The arrays of a call. Results are arrays of the first one's type, on its device.
//
// torch's tensors are made by the function that torch.compile's code calls, in 0.6 of the time of
// torch.empty_like. DLPack's allocator takes as long as that, and Tensor.record_stream has no
// effect on what it makes.
class ExchangedArrays final : public python::Arrays, public Framework {
 public:
  bool takes(PyObject* object) override;
  Tensor borrow(PyObject* array) override;
  void call(const python::EntryPoint& of, const Tensor& first, const Value* values,
            const Tensor* outs, Tensor* results) override;
  Object object_of(const Tensor& result) override;

  Tensor allocate(const Tensor& like, const TensorView& wanted) override;
  Tensor allocate_bytes(const Tensor& like, std::int64_t count) override;
  Tensor contiguous(const Tensor& tensor) override;
  Tensor clone(const Tensor& tensor) override;
  Tensor matrix(const Tensor& contiguous, const Matrix& layout) override;
  gpu::Stream current_stream(int gpu) override;

 private:
  // A new array, made by the framework's allocator.
  Tensor allocated(DLTensor prototype) const;
  // What a tensor of torch's returns from a method without arguments.
  Tensor method(const Tensor& tensor, const char* name, const char* expected) const;

  const char* name_ = "";            // the entry point's
  const ArrayType* type_ = nullptr;  // of the first array, as is
  DLDevice device_{};
};

}  // namespace fusedops::dlpack
