#include "torch/dlpack/frameworks.h"

#include <deque>
#include <string>

#include "torch/entry_points.h"

namespace fusedops::dlpack {
namespace {

constexpr const char* kApi = "__dlpack_c_exchange_api__";

// Objects of torch's that live as long as the process.
struct Torch {
  PyTypeObject* tensor;
  PyTypeObject* parameter;
  PyObject* empty_strided;  // on the current GPU
  PyObject* dtypes[4];      // by DType
  PyObject* is_grad_enabled;
  PyObject* dispatch_modes;  // how many TorchDispatchModes are active
  PyObject* function_mode;   // whether a TorchFunctionMode is active
  PyObject* profiler;        // whether one is
  PyObject* tracing;         // whether torch.jit.trace is
  PyObject* transforms;      // whether a transform of torch.func is active
  PyObject* forward_ad;      // the names of torch.autograd.forward_ad
  PyObject* level;           // of them: the level of its tangents, -1 without any
  PyObject* increment_version;
  PyObject* inference_mode;  // whether it is enabled
  PyObject* is_inference;    // the tensor's method
  PyObject* requires_grad;   // the attribute's name
  const ArrayType* array_type;
};

Torch torch;

// A deque does not move its elements.
std::deque<ArrayType>& array_types() {
  static std::deque<ArrayType> all;
  return all;
}

PyObject* attribute(PyObject* of, const char* name) {
  return checked(PyObject_GetAttrString(of, name));
}

PyTypeObject* type_of(PyObject* of, const char* name) {
  return reinterpret_cast<PyTypeObject*>(attribute(of, name));
}

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

const ArrayType& add(PyTypeObject* type, const DLPackExchangeAPI* api, bool is_torch) {
  Py_INCREF(reinterpret_cast<PyObject*>(type));  // its address names it from now on
  return array_types().emplace_back(ArrayType{type, api, is_torch});
}

Object called(PyObject* function) { return Object(checked(PyObject_CallNoArgs(function))); }

Object called(PyObject* function, PyObject* argument) {
  return Object(checked(PyObject_CallFunctionObjArgs(function, argument, nullptr)));
}

bool is_true(const Object& object) { return object.get() != Py_False; }

Object tuple_of(const std::int64_t* numbers, std::int32_t count) {
  Object tuple(checked(PyTuple_New(count)));
  for (std::int32_t i = 0; i < count; ++i) {
    if (PyTuple_SetItem(tuple.get(), i, checked(PyLong_FromLongLong(numbers[i]))) != 0) {
      throw PythonError();
    }
  }
  return tuple;
}

}  // namespace

std::string type_name(PyTypeObject* type) {
  const Object name(checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__name__")));
  const char* const text = PyUnicode_AsUTF8AndSize(name.get(), nullptr);
  if (text == nullptr) throw PythonError();
  return text;
}

void import_torch() {
  const Object module(checked(PyImport_ImportModule("torch")));
  const Object c(attribute(module.get(), "_C")), nn(attribute(module.get(), "nn"));
  torch.tensor = type_of(module.get(), "Tensor");
  torch.parameter = type_of(nn.get(), "Parameter");
  torch.is_inference = attribute(reinterpret_cast<PyObject*>(torch.tensor), "is_inference");
  const Object dynamo(attribute(c.get(), "_dynamo")), guards(attribute(dynamo.get(), "guards"));
  torch.empty_strided = attribute(guards.get(), "_empty_strided_cuda");
  for (const typed::Type& type : typed::kTypes) {
    torch.dtypes[static_cast<int>(type.dtype)] = attribute(module.get(), type.name);
  }
  torch.is_grad_enabled = attribute(module.get(), "is_grad_enabled");
  torch.dispatch_modes = attribute(c.get(), "_len_torch_dispatch_stack");
  torch.function_mode = attribute(c.get(), "_is_torch_function_mode_enabled");
  const Object autograd(attribute(c.get(), "_autograd"));
  torch.profiler = attribute(autograd.get(), "_profiler_enabled");
  torch.tracing = attribute(c.get(), "_is_tracing");
  torch.transforms = attribute(c.get(), "_are_functorch_transforms_active");
  const Object forward_ad(checked(PyImport_ImportModule("torch.autograd.forward_ad")));
  torch.forward_ad = attribute(forward_ad.get(), "__dict__");
  torch.level = checked(PyUnicode_InternFromString("_current_level"));
  torch.increment_version = attribute(c.get(), "_increment_version");
  torch.inference_mode = attribute(module.get(), "is_inference_mode_enabled");
  torch.requires_grad = checked(PyUnicode_InternFromString("requires_grad"));
  const DLPackExchangeAPI* const api = api_of(torch.tensor);
  if (api == nullptr) throw Error("fusedops: this torch has no DLPack exchange API of version 1");
  torch.array_type = &add(torch.tensor, api, true);
  add(torch.parameter, api, true);
}

const ArrayType& torch_type() { return *torch.array_type; }

bool is_tensor(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  return type == torch.tensor || type == torch.parameter;
}

const ArrayType* array_type_of(const char* name, PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  if (type == torch.tensor) return torch.array_type;
  for (const ArrayType& known : array_types()) {
    if (known.type == type) return &known;
  }
  if (PyType_IsSubtype(type, torch.tensor)) {
    throw Error(std::string(name) + ": expected a plain torch.Tensor, found its subclass " +
                type_name(type) + "; call the operator without a type's suffix");
  }
  const DLPackExchangeAPI* const api = api_of(type);
  return api ? &add(type, api, false) : nullptr;
}

bool mode_is_active() {
  PyObject* const level = checked(PyDict_GetItemWithError(torch.forward_ad, torch.level));
  return PyLong_AsLong(level) >= 0 || PyLong_AsLong(called(torch.dispatch_modes).get()) != 0;
}

bool call_is_watched() {
  return is_true(called(torch.function_mode)) || is_true(called(torch.tracing)) ||
         is_true(called(torch.profiler));
}

bool transform_is_active() { return is_true(called(torch.transforms)); }

bool grad_is_enabled() { return is_true(called(torch.is_grad_enabled)); }

bool requires_grad(PyObject* tensor) {
  return is_true(Object(checked(PyObject_GetAttr(tensor, torch.requires_grad))));
}

bool is_negative_view(const Tensor& tensor) {
  if (is_contiguous(tensor.view()) && elements_of(tensor.view()) != 1) return false;
  return is_true(Object(checked(PyObject_CallMethod(array_of(tensor), "is_neg", ""))));
}

bool is_inference(PyObject* tensor) { return is_true(called(torch.is_inference, tensor)); }

bool inference_mode_is_enabled() { return is_true(called(torch.inference_mode)); }

void increment_version(PyObject* tensor) {
  const Object tensors(checked(PyTuple_Pack(1, tensor)));
  called(torch.increment_version, tensors.get());
}

Object torch_empty(const DLTensor& prototype, DType dtype) {
  const Object sizes = tuple_of(prototype.shape, prototype.ndim),
               strides = tuple_of(prototype.strides, prototype.ndim);
  return Object(
      checked(PyObject_CallFunctionObjArgs(torch.empty_strided, sizes.get(), strides.get(),
                                           torch.dtypes[static_cast<int>(dtype)], nullptr)));
}

}  // namespace fusedops::dlpack
