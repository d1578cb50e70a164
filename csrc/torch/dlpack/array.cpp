#include "torch/dlpack/array.h"

#include <memory>
#include <string>

#include "torch/dlpack/frameworks.h"

namespace fusedops::dlpack {
namespace {

DType dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return DType::unsupported;
  const auto is = [&](int code, int bits) { return type.code == code && type.bits == bits; };
  if (is(kDLFloat, 32)) return DType::float32;
  if (is(kDLFloat, 16)) return DType::float16;
  if (is(kDLBfloat, 16)) return DType::bfloat16;
  if (is(kDLFloat, 64)) return DType::float64;
  if (type.code == kDLBool) return DType::boolean;
  if (is(kDLInt, 8)) return DType::int8;
  if (is(kDLUInt, 8)) return DType::uint8;
  if (is(kDLInt, 32)) return DType::int32;
  return is(kDLInt, 64) ? DType::int64 : DType::unsupported;
}

Device device_of(const DLDevice& device) {
  if (device.device_type == kDLCUDA || device.device_type == kDLROCM) {
    return {"cuda", device.device_id};
  }
  return {device.device_type == kDLCPU ? "cpu" : "another kind of device", -1};
}

TensorView view_of(const DLTensor& memory) {
  void* const data = static_cast<char*>(memory.data) + memory.byte_offset;
  return {data,        dtype_of(memory.dtype),   memory.shape,
          memory.ndim, device_of(memory.device), memory.strides};
}

// The tensor keeps the array alive.
Tensor owned(const ArrayType& type, Object array) {
  const TensorView view = view_of(memory_of(type, array.get()));
  const auto release = [](void* object) { Py_DECREF(static_cast<PyObject*>(object)); };
  return {view, std::shared_ptr<void>(array.release(), release)};
}

DLDataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * element_size(dtype));
  return {static_cast<std::uint8_t>(dtype == DType::bfloat16 ? kDLBfloat : kDLFloat), bits, 1};
}

std::int64_t bytes_of_element(DType dtype) {
  if (dtype == DType::unsupported) return 16;  // no operator takes another type
  if (dtype == DType::int64) return 8;
  if (dtype == DType::int32) return 4;
  return dtype <= DType::float64 ? element_size(dtype) : 1;
}

}  // namespace

DLTensor memory_of(const ArrayType& type, PyObject* array) {
  DLTensor memory;
  if (type.api->dltensor_from_py_object_no_sync(array, &memory) != 0) throw PythonError();
  return memory;
}

Tensor borrowed(const DLTensor& memory, PyObject* array) {
  return Tensor::borrowed(view_of(memory), array);
}

bool share_memory(const TensorView& a, const TensorView& b) {
  const auto bytes = [](const TensorView& view) {
    std::int64_t reach = 1;
    for (std::int64_t at = 0; at < view.dim; ++at) {
      if (view.sizes[at] == 0) return std::int64_t{0};
      reach += (view.sizes[at] - 1) * view.strides[at];
    }
    return reach * bytes_of_element(view.dtype);
  };
  const auto begin = [](const TensorView& view) { return static_cast<const char*>(view.data); };
  return same_device(a, b) && begin(a) < begin(b) + bytes(b) && begin(b) < begin(a) + bytes(a);
}

bool same_memory(const TensorView& a, const TensorView& b) {
  return a.data == b.data && is_alike(a, b) && is_contiguous(a) && is_contiguous(b);
}

Arrays::Arrays(const char* name, const ArrayType& type, const DLDevice& of)
    : name_(name), type_(type), device_(of) {
  const Device device = device_of(device_);
  if (device.index < 0) return;
  const Gpu on{device.index, nullptr};
  int before = device.index;
  check_launch(name, on, FUSEDOPS_KERNEL(on, make_current)(device.index, before));
  if (before != device.index) gpu_before_ = before;
}

Arrays::~Arrays() {
  if (gpu_before_ < 0) return;
  // The GPU was current before, so that it can be again; a destructor has nobody to tell.
  int now = 0;
  FUSEDOPS_KERNEL((Gpu{device_.device_id, nullptr}), make_current)(gpu_before_, now);
}

Tensor Arrays::allocate(const Tensor& like, const TensorView& wanted) {
  const ContiguousStrides strides(wanted);
  DLTensor prototype{};
  prototype.device = device_;
  prototype.dtype = type_of(wanted.dtype);
  prototype.ndim = static_cast<std::int32_t>(wanted.dim);
  prototype.shape = const_cast<std::int64_t*>(wanted.sizes);
  prototype.strides = const_cast<std::int64_t*>(strides.data());
  const bool torch = type_.torch && is_tensor(array_of(like));
  return torch ? owned(type_, torch_empty(prototype, wanted.dtype)) : allocated(prototype);
}

Tensor Arrays::allocate_bytes(const Tensor&, std::int64_t count) {
  std::int64_t stride = 1;
  DLTensor prototype{};
  prototype.device = device_;
  prototype.dtype = {kDLUInt, 8, 1};
  prototype.ndim = 1;
  prototype.shape = &count;
  prototype.strides = &stride;
  return allocated(prototype);
}

Tensor Arrays::allocated(DLTensor prototype) const {
  const auto set_error = [](void*, const char*, const char* message) {
    PyErr_SetString(PyExc_RuntimeError, message);
  };
  DLManagedTensorVersioned* made = nullptr;
  if (type_.api->managed_tensor_allocator(&prototype, &made, nullptr, set_error) != 0) {
    throw PythonError();
  }
  void* object = nullptr;
  if (type_.api->managed_tensor_to_py_object_no_sync(made, &object) != 0) throw PythonError();
  return owned(type_, Object(static_cast<PyObject*>(object)));
}

Tensor Arrays::method(const Tensor& tensor, const char* name, const char* expected) const {
  if (!is_tensor(array_of(tensor))) {
    throw Error(std::string(name_) + ": expected " + expected + ", found strides " +
                strides_of(tensor.view()));
  }
  return owned(torch_type(), Object(checked(PyObject_CallMethod(array_of(tensor), name, ""))));
}

Tensor Arrays::contiguous(const Tensor& tensor) {
  return method(tensor, "contiguous", "a contiguous array");
}

Tensor Arrays::clone(const Tensor& tensor) {
  return method(tensor, "clone", "an array that starts on 16 bytes");
}

gpu::Stream Arrays::current_stream(int gpu) {
  gpu::Stream stream = nullptr;
  if (type_.api->current_work_stream(device_.device_type, gpu, &stream) != 0) throw PythonError();
  return stream;
}

}  // namespace fusedops::dlpack
