#include "torch/dlpack/arrays.h"

#include <deque>
#include <memory>
#include <string>

#include "families/call.h"
#include "families/checks.h"
#include "torch/python/torch_state.h"
#include "torch/types.h"

namespace fusedops::dlpack {
namespace {

using python::checked;
using python::is_tensor;
using python::PythonError;

constexpr const char* kApi = "__dlpack_c_exchange_api__";

// A deque does not move its elements.
std::deque<ArrayType>& array_types() {
  static std::deque<ArrayType> all;
  return all;
}

const ArrayType* tensors;   // of them: torch.Tensor's
PyObject* empty_strided;    // torch's function for a tensor on the current GPU
PyObject* reinterpret;      // torch's function for a view of other sizes and strides
PyObject* torch_dtypes[4];  // by DType

// The table of a type, in the major version that this was compiled with; null if there is none.
const DLPackExchangeAPI* api_of(PyTypeObject* type) {
  const Object capsule(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), kApi));
  if (!capsule) {
    PyErr_Clear();
    return nullptr;
  }
  const void* const table = PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api");
  if (table == nullptr) throw PythonError();
  const auto* header = static_cast<const DLPackExchangeAPIHeader*>(table);
  while (header && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
  const auto* const api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  const bool complete = api && api->managed_tensor_allocator &&
                        api->managed_tensor_to_py_object_no_sync &&
                        api->dltensor_from_py_object_no_sync && api->current_work_stream;
  return complete ? api : nullptr;
}

// The type of an array; null if the object is none.
const ArrayType* type_of(PyObject* object) {
  if (is_tensor(object)) return tensors;
  PyTypeObject* const type = Py_TYPE(object);
  for (const ArrayType& known : array_types()) {
    if (known.type == type) return &known;
  }
  // A subclass of torch.Tensor has a way of its own to run operators.
  if (PyType_IsSubtype(type, python::tensor_type)) return nullptr;
  const DLPackExchangeAPI* const api = api_of(type);
  if (api == nullptr) return nullptr;
  Py_INCREF(reinterpret_cast<PyObject*>(type));  // its address names it from now on
  return &array_types().emplace_back(ArrayType{type, api, false});
}

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

TensorView view_of(const DLTensor& memory) {
  const DLDevice& on = memory.device;
  const bool is_gpu = on.device_type == kDLCUDA || on.device_type == kDLROCM;
  return {static_cast<char*>(memory.data) + memory.byte_offset,
          dtype_of(memory.dtype),
          memory.shape,
          memory.ndim,
          device_of(is_gpu, on.device_type == kDLCPU, on.device_id),
          memory.strides};
}

DLDataType data_type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * element_size(dtype));
  return {static_cast<std::uint8_t>(dtype == DType::bfloat16 ? kDLBfloat : kDLFloat), bits, 1};
}

// The framework's view of an array's memory.
DLTensor memory_of(const ArrayType& type, PyObject* array) {
  DLTensor memory;
  if (type.api->dltensor_from_py_object_no_sync(array, &memory) == 0) return memory;
  if (!type.torch) throw PythonError();
  PyErr_Clear();
  throw Refused("torch does not give the tensor's memory");
}

PyObject* array_of(const Tensor& tensor) { return static_cast<PyObject*>(tensor.object()); }

// The tensor keeps the array alive.
Tensor owned(const ArrayType& type, Object array) {
  const TensorView view = view_of(memory_of(type, array.get()));
  const auto release = [](void* object) { Py_DECREF(static_cast<PyObject*>(object)); };
  return {view, std::shared_ptr<void>(array.release(), release)};
}

Object numbers(const std::int64_t* from, std::int64_t count) {
  return python::tuple_of(static_cast<std::size_t>(count),
                          [&](std::size_t i) { return Object(PyLong_FromLongLong(from[i])); });
}

// Makes a GPU the current one while it lives.
class CurrentGpu {
 public:
  CurrentGpu(const char* name, int gpu) : gpu_(gpu), before_(gpu) {
    const Gpu on{gpu, nullptr};
    check_launch(name, on, FUSEDOPS_KERNEL(on, make_current)(gpu, before_));
  }
  CurrentGpu(const CurrentGpu&) = delete;
  ~CurrentGpu() {
    if (before_ == gpu_) return;
    // The GPU was current before, so that it can be again; a destructor has nobody to tell.
    int now = 0;
    FUSEDOPS_KERNEL((Gpu{gpu_, nullptr}), make_current)(before_, now);
  }

 private:
  const int gpu_;
  int before_;
};

}  // namespace

void import_torch() {
  python::import_torch();
  const Object module(checked(PyImport_ImportModule("torch")));
  const Object c(python::attribute(module.get(), "_C"));
  const Object dynamo(python::attribute(c.get(), "_dynamo"));
  const Object guards(python::attribute(dynamo.get(), "guards"));
  empty_strided = python::attribute(guards.get(), FUSEDOPS_EMPTY_STRIDED);
  reinterpret = python::attribute(guards.get(), "_reinterpret_tensor");
  for (const python::TypeSuffix& type : python::kTypes) {
    torch_dtypes[static_cast<int>(type.dtype)] = python::attribute(module.get(), type.name);
  }
  const DLPackExchangeAPI* const api = api_of(python::tensor_type);
  if (api == nullptr) throw Error("fusedops: this torch has no DLPack exchange API of version 1");
  tensors = &array_types().emplace_back(ArrayType{python::tensor_type, api, true});
}

bool ExchangedArrays::takes(PyObject* object) { return type_of(object) != nullptr; }

Tensor ExchangedArrays::borrow(PyObject* array) {
  const ArrayType& type = *type_of(array);
  const DLTensor memory = memory_of(type, array);
  if (!type_) {
    type_ = &type;
    device_ = memory.device;
  }
  return Tensor::borrowed(view_of(memory), array);
}

void ExchangedArrays::call(const python::EntryPoint& of, const Tensor& first, const Value* values,
                           const Tensor* outs, Tensor* results) {
  name_ = of.name.c_str();
  try {
    const CurrentGpu current(name_, first.view().device.index);
    const Call call(name_, *this, outs, of.native.results);
    of.native.call(values, results);
  } catch (const torchwheel::NoKernel& error) {
    // The first call on a GPU, where the loader chooses its kernels; or a GPU that has none.
    throw Refused(error.what());
  }
}

Object ExchangedArrays::object_of(const Tensor& result) {
  return Object::borrowed(array_of(result));
}

Tensor ExchangedArrays::allocate(const Tensor& like, const TensorView& wanted) {
  const ContiguousStrides strides(wanted);
  if (type_->torch && is_tensor(array_of(like))) {
    const Object sizes = numbers(wanted.sizes, wanted.dim),
                 steps = numbers(strides.data(), wanted.dim);
    PyObject* const dtype = torch_dtypes[static_cast<int>(wanted.dtype)];
    return owned(*type_, Object(checked(PyObject_CallFunctionObjArgs(
                             empty_strided, sizes.get(), steps.get(), dtype, nullptr))));
  }
  DLTensor prototype{};
  prototype.device = device_;
  prototype.dtype = data_type_of(wanted.dtype);
  prototype.ndim = static_cast<std::int32_t>(wanted.dim);
  prototype.shape = const_cast<std::int64_t*>(wanted.sizes);
  prototype.strides = const_cast<std::int64_t*>(strides.data());
  return allocated(prototype);
}

Tensor ExchangedArrays::allocate_bytes(const Tensor&, std::int64_t count) {
  std::int64_t stride = 1;
  DLTensor prototype{};
  prototype.device = device_;
  prototype.dtype = {kDLUInt, 8, 1};
  prototype.ndim = 1;
  prototype.shape = &count;
  prototype.strides = &stride;
  return allocated(prototype);
}

Tensor ExchangedArrays::allocated(DLTensor prototype) const {
  const auto set_error = [](void*, const char*, const char* message) {
    PyErr_SetString(PyExc_RuntimeError, message);
  };
  DLManagedTensorVersioned* made = nullptr;
  if (type_->api->managed_tensor_allocator(&prototype, &made, nullptr, set_error) != 0) {
    throw PythonError();
  }
  void* object = nullptr;
  if (type_->api->managed_tensor_to_py_object_no_sync(made, &object) != 0) throw PythonError();
  return owned(*type_, Object(static_cast<PyObject*>(object)));
}

Tensor ExchangedArrays::method(const Tensor& tensor, const char* name, const char* expected) const {
  if (!is_tensor(array_of(tensor))) {
    throw Error(std::string(name_) + ": expected " + expected + ", found strides " +
                strides_of(tensor.view()));
  }
  return owned(*tensors, Object(checked(PyObject_CallMethod(array_of(tensor), name, ""))));
}

Tensor ExchangedArrays::contiguous(const Tensor& tensor) {
  return method(tensor, "contiguous", "a contiguous array");
}

Tensor ExchangedArrays::clone(const Tensor& tensor) {
  return method(tensor, "clone", "an array that starts on 16 bytes");
}

Tensor ExchangedArrays::matrix(const Tensor& contiguous, const Matrix& layout) {
  if (!is_tensor(array_of(contiguous))) throw Error(std::string(name_) + ": torch alone does this");
  const Object sizes = numbers(layout.sizes, 2), steps = numbers(layout.strides, 2),
               offset(checked(PyLong_FromLong(0)));
  return owned(
      *tensors,
      Object(checked(PyObject_CallFunctionObjArgs(reinterpret, array_of(contiguous), sizes.get(),
                                                  steps.get(), offset.get(), nullptr))));
}

gpu::Stream ExchangedArrays::current_stream(int gpu) {
  if (gpu::kModelled) return nullptr;
  gpu::Stream stream = nullptr;
  if (type_->api->current_work_stream(device_.device_type, gpu, &stream) != 0) throw PythonError();
  return stream;
}

}  // namespace fusedops::dlpack
