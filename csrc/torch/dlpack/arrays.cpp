// Views, copies and new arrays for the Api over DLPack.
#include <cstring>
#include <string>

#include "torch/dlpack/frameworks.h"

namespace fusedops::dlpack {
namespace {

DType dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return DType::unsupported;
  if (type.code == kDLBfloat && type.bits == 16) return DType::bfloat16;
  if (type.code != kDLFloat) return DType::unsupported;
  switch (type.bits) {
    case 16:
      return DType::float16;
    case 32:
      return DType::float32;
    case 64:
      return DType::float64;
    default:
      return DType::unsupported;
  }
}

const char* name_of(const DLDataType& type) {
  switch (dtype_of(type)) {
    case DType::float16:
      return "float16";
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    default:
      break;
  }
  if (type.code == kDLBool) return "bool";
  if (type.code == kDLInt && type.lanes == 1) {
    if (type.bits == 64) return "int64";
    if (type.bits == 32) return "int32";
    if (type.bits == 8) return "int8";
  }
  if (type.code == kDLUInt && type.bits == 8 && type.lanes == 1) return "uint8";
  return "another type";
}

Device device_of(const DLDevice& device) {
  if (device.device_type == kDLCUDA || device.device_type == kDLROCM) {
    return {"cuda", device.device_id};
  }
  return {device.device_type == kDLCPU ? "cpu" : "another kind of device", -1};
}

// What `array` returns from a method without arguments.
Array method(const Array& array, const char* name, const char* expected) {
  if (!array.framework().torch) {
    throw Error(std::string(current_call()->name) + ": expected " + expected + ", found strides " +
                strides_of(view_of(array)));
  }
  return {array.framework(), Object(checked(PyObject_CallMethod(array.object().get(), name, "")))};
}

// A new array of the current call's framework, made by its allocator.
Array allocated(DLTensor prototype) {
  const Framework& framework = current_call()->framework;
  const auto set_error = [](void*, const char*, const char* message) {
    PyErr_SetString(PyExc_RuntimeError, message);
  };
  DLManagedTensorVersioned* made = nullptr;
  if (framework.api->managed_tensor_allocator(&prototype, &made, nullptr, set_error) != 0) {
    throw PythonError();
  }
  void* object = nullptr;
  if (framework.api->managed_tensor_to_py_object_no_sync(made, &object) != 0) throw PythonError();
  return {framework, Object(static_cast<PyObject*>(object))};
}

// The next of the arrays that the caller gave for the results.
Array next_out(const std::int64_t* sizes, std::int64_t dim, const DLDataType& dtype) {
  const Array& out = current_call()->outs[current_call()->next_out++];
  TensorView expected = view_of(out);
  expected.sizes = sizes;
  expected.dim = dim;
  expected.dtype_name = name_of(dtype);
  expected.device = device_of(current_call()->device);
  check_out(current_call()->name, view_of(out), expected);
  return out;
}

}  // namespace

Call*& current_call() {
  // In the function: an extern thread_local refers to a function that initialises it, if any.
  static thread_local Call* call = nullptr;
  return call;
}

TensorView view_of(const Array& array) {
  const DLTensor& view = array.view();
  return {array.data(), dtype_of(view.dtype),   name_of(view.dtype), view.shape,
          view.ndim,    device_of(view.device), view.strides};
}

bool share_memory(const Array& a, const Array& b) {
  const auto bytes = [](const Array& array) {
    const DLTensor& view = array.view();
    std::int64_t reach = 1;
    for (int at = 0; at < view.ndim; ++at) {
      if (view.shape[at] == 0) return std::int64_t{0};
      reach += (view.shape[at] - 1) * view.strides[at];
    }
    return reach * view.dtype.bits / 8;
  };
  const auto begin = [](const Array& array) { return static_cast<const char*>(array.data()); };
  const TensorView one = view_of(a), other = view_of(b);
  return same_device(one, other) && begin(a) < begin(b) + bytes(b) &&
         begin(b) < begin(a) + bytes(a);
}

bool same_memory(const Array& a, const Array& b) {
  const TensorView one = view_of(a), other = view_of(b);
  return one.data == other.data && same_shape(one, other) && is_contiguous(one) &&
         is_contiguous(other) && has_dtype(one, other.dtype_name);
}

Array contiguous(const Array& array) {
  return is_contiguous(view_of(array)) ? array : method(array, "contiguous", "a contiguous array");
}

Array clone(const Array& array) {
  return method(array, "clone", "an array that starts on 16 bytes");
}

Array empty_like(const Array& array) {
  const DLTensor& view = array.view();
  if (current_call()->outs) return next_out(view.shape, view.ndim, view.dtype);
  if (array.framework().torch && current_call()->framework.torch) {
    return {array.framework(), torch_empty_like(array.object().get())};
  }
  return allocated(view);
}

Array empty(const Array& like, const std::vector<std::int64_t>& sizes, DType dtype) {
  DLTensor prototype = like.view();
  if (dtype != dtype_of(prototype.dtype)) throw Error("fusedops: expected results of one dtype");
  prototype.ndim = static_cast<std::int32_t>(sizes.size());
  prototype.shape = const_cast<std::int64_t*>(sizes.data());
  if (current_call()->outs) return next_out(prototype.shape, prototype.ndim, prototype.dtype);
  if (like.framework().torch && current_call()->framework.torch) {
    return {like.framework(), torch_new_empty(like.object().get(), sizes)};
  }
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t at = sizes.size(); at-- > 1;) strides[at - 1] = strides[at] * sizes[at];
  prototype.strides = strides.data();
  return allocated(prototype);
}

Array empty_bytes(const Array& like, std::int64_t count) {
  std::int64_t stride = 1;
  DLTensor prototype = like.view();
  prototype.dtype = {kDLUInt, 8, 1};
  prototype.ndim = 1;
  prototype.shape = &count;
  prototype.strides = &stride;
  return allocated(prototype);
}

}  // namespace fusedops::dlpack
