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
                strides_of(array.view()));
  }
  return {array.framework(), Object(checked(PyObject_CallMethod(array.object().get(), name, "")))};
}

// A new array of a framework, made by its allocator.
Array allocated(const Framework& framework, DLTensor prototype) {
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
const Array& next_out(Call& call, const DLTensor& like) {
  const Array& out = call.outs[call.next_out++];
  TensorView expected = out.view();
  expected.sizes = like.shape;
  expected.dim = like.ndim;
  expected.dtype_name = name_of(like.dtype);
  expected.device = device_of(call.device);
  check_out(call.name, out.view(), expected);
  return out;
}

// An array for a result: contiguous, and of the prototype's shape and dtype.
Array result(const Array& like, const DLTensor& prototype) {
  Call& call = *current_call();
  if (call.outs) return next_out(call, prototype);
  if (like.framework().torch && call.framework.torch) {
    return {like.framework(), torch_empty(prototype, like.view().dtype)};
  }
  return allocated(call.framework, prototype);
}

}  // namespace

Call*& current_call() {
  // In the function: an extern thread_local refers to a function that initialises it, if any.
  static thread_local Call* call = nullptr;
  return call;
}

Array::Array(const Framework& framework, Object object)
    : framework_(&framework), object_(std::move(object)) {
  if (framework.api->dltensor_from_py_object_no_sync(object_.get(), &theirs_) != 0) {
    throw PythonError();
  }
  void* const data = static_cast<char*>(theirs_.data) + theirs_.byte_offset;
  view_ = {data,         dtype_of(theirs_.dtype),   name_of(theirs_.dtype), theirs_.shape,
           theirs_.ndim, device_of(theirs_.device), theirs_.strides};
}

bool share_memory(const Array& a, const Array& b) {
  const auto bytes = [](const Array& array) {
    const TensorView& view = array.view();
    std::int64_t reach = 1;
    for (std::int64_t at = 0; at < view.dim; ++at) {
      if (view.sizes[at] == 0) return std::int64_t{0};
      reach += (view.sizes[at] - 1) * view.strides[at];
    }
    return reach * array.theirs().dtype.bits / 8;
  };
  const auto begin = [](const Array& array) { return static_cast<const char*>(array.view().data); };
  return same_device(a.view(), b.view()) && begin(a) < begin(b) + bytes(b) &&
         begin(b) < begin(a) + bytes(a);
}

bool same_memory(const Array& a, const Array& b) {
  const TensorView &one = a.view(), &other = b.view();
  return one.data == other.data && same_shape(one, other) && is_contiguous(one) &&
         is_contiguous(other) && has_dtype(one, other.dtype_name);
}

Array contiguous(const Array& array) {
  return is_contiguous(array.view()) ? array : method(array, "contiguous", "a contiguous array");
}

Array clone(const Array& array) {
  return method(array, "clone", "an array that starts on 16 bytes");
}

Array empty_like(const Array& array) { return result(array, array.theirs()); }

Array empty(const Array& like, const std::vector<std::int64_t>& sizes, DType dtype) {
  if (dtype != like.view().dtype) throw Error("fusedops: expected results of one dtype");
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t at = sizes.size(); at-- > 1;) strides[at - 1] = strides[at] * sizes[at];
  DLTensor prototype = like.theirs();
  prototype.ndim = static_cast<std::int32_t>(sizes.size());
  prototype.shape = const_cast<std::int64_t*>(sizes.data());
  prototype.strides = strides.data();
  return result(like, prototype);
}

Array empty_bytes(const Array& like, std::int64_t count) {
  std::int64_t stride = 1;
  DLTensor prototype = like.theirs();
  prototype.dtype = {kDLUInt, 8, 1};
  prototype.ndim = 1;
  prototype.shape = &count;
  prototype.strides = &stride;
  return allocated(current_call()->framework, prototype);
}

}  // namespace fusedops::dlpack
