#include "torch/python/entry_point.h"

#include <array>
#include <new>

#include "families/call.h"
#include "families/checks.h"
#include "torch/python/torch_state.h"

namespace fusedops::python {
namespace {

bool same_name(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

std::int64_t bytes_of_element(DType dtype) {
  if (dtype == DType::unsupported) return 16;  // no operator takes another type
  if (dtype == DType::int64) return 8;
  if (dtype == DType::int32) return 4;
  return dtype <= DType::float64 ? element_size(dtype) : 1;
}

// Whether two arrays lie in the same bytes in part, from their first to their last.
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

// Whether they are contiguous, of one dtype and shape, and in the same memory.
bool same_memory(const TensorView& a, const TensorView& b) {
  return a.data == b.data && same_shape(a, b) && is_contiguous(a) && is_contiguous(b) &&
         a.dtype == b.dtype;
}

// A call on its way to the operator. A function refuses the call by false. It gives a reason where
// an array may not be torch's: Python's entry point has no words for such a call.
class BoundCall {
 public:
  BoundCall(const EntryPoint& of, Arrays& arrays) : of_(of), arrays_(arrays) {}
  BoundCall(const BoundCall&) = delete;
  ~BoundCall() {
    for (std::size_t i = 0; i < count_; ++i) at(i)->~Tensor();
  }

  bool read(const PythonCall& given) {
    return bind(given) && read_out() && are_plain() && read_values() && borrow_outs();
  }

  Object run() {
    const std::size_t count = of_.native.results;
    Tensor* const results = at(count_);
    for (std::size_t i = 0; i < count; ++i) new (at(count_++)) Tensor();
    arrays_.call(of_, *at(0), values_.data(), outs_, results);
    for (std::size_t i = 0; i < versioned_; ++i) increment_version(with_version_[i]);
    if (outs_) return Object::borrowed(out_);
    const auto object = [&](std::size_t i) {
      return i < count ? arrays_.object_of(results[i]) : Object::borrowed(written_[i - count]);
    };
    const std::size_t all = count + (of_.python ? writes_ : 0);
    if (all == 0) return Object::borrowed(Py_None);
    return all == 1 ? object(0) : tuple_of(all, object);
  }

  bool has_others() const { return others_; }
  const char* reason() const { return reason_; }

 private:
  Tensor* at(std::size_t i) { return reinterpret_cast<Tensor*>(storage_ + i * sizeof(Tensor)); }

  bool refuse(const char* reason) {
    reason_ = reason;
    return false;
  }

  // Finds the object of each parameter, as Python itself does for a function of that signature.
  bool bind(const PythonCall& given) {
    if (given.count > of_.positional) return false;
    for (std::size_t i = 0; i < given.count; ++i) objects_[i] = given.args[i];
    const Py_ssize_t named = given.names ? PyTuple_Size(given.names) : 0;
    for (Py_ssize_t n = 0; n < named; ++n) {
      PyObject** const place = place_of(PyTuple_GetItem(given.names, n));
      if (!place || *place) return false;  // an unexpected name, or a second value
      *place = given.args[given.count + static_cast<std::size_t>(n)];
    }
    for (std::size_t i = 0; i < of_.parameters.size(); ++i) {
      if (!objects_[i] && !of_.parameters[i].has_default) return false;
    }
    return true;
  }

  PyObject** place_of(PyObject* name) {
    static PyObject* const out = PyUnicode_InternFromString("out");
    for (std::size_t i = 0; i < of_.parameters.size(); ++i) {
      if (name == of_.parameters[i].name) return &objects_[i];
    }
    if (of_.written == 0 && same_name(name, out)) return &out_;
    for (std::size_t i = 0; i < of_.parameters.size(); ++i) {
      if (same_name(name, of_.parameters[i].name)) return &objects_[i];
    }
    return nullptr;
  }

  // The arrays that the caller gave for the results.
  bool read_out() {
    if (out_ == nullptr || out_ == Py_None) return true;
    given_outs_ = of_.native.results;
    const auto count = static_cast<Py_ssize_t>(given_outs_);
    if (count == 1) {
      out_objects_[0] = out_;
      return true;
    }
    if (!PyTuple_Check(out_) || PyTuple_Size(out_) != count) return false;
    for (Py_ssize_t i = 0; i < count; ++i) out_objects_[i] = PyTuple_GetItem(out_, i);
    return true;
  }

  // Looks at every array before the memory of one is asked for.
  bool are_plain() {
    if (!of_.type && call_is_watched()) return false;
    for (std::size_t i = 0; i < of_.parameters.size(); ++i) {
      PyObject* const object = objects_[i];
      if (of_.native.parameters[i].kind != Kind::tensor || object == nullptr) continue;
      if (object == Py_None && of_.parameters[i].optional) continue;
      if (!is_plain(object)) return false;
    }
    for (std::size_t i = 0; i < given_outs_; ++i) {
      if (!is_plain(out_objects_[i])) return false;
    }
    return true;
  }

  // Whether an object is an array that nothing is to be known of but its memory.
  bool is_plain(PyObject* object) {
    if (!is_tensor(object)) {
      if (!of_.type || !arrays_.takes(object)) return refuse("an argument is no array");
      return others_ = true;
    }
    if (!checked_) {
      checked_ = true;
      if (mode_is_active()) return refuse("a mode of torch's would not see this call");
      grad_ = grad_is_enabled();
    }
    return !(grad_ && requires_grad(object)) || refuse("it has no gradient");
  }

  bool read_values() {
    for (std::size_t i = 0; i < of_.parameters.size(); ++i) {
      const SchemaParameter& parameter = of_.parameters[i];
      PyObject* const object = objects_[i];
      const Kind kind = of_.native.parameters[i].kind;
      values_[i] = parameter.value;
      if (object == nullptr || (object == Py_None && parameter.optional)) continue;
      if (kind == Kind::tensor) {
        values_[i].tensor = borrow(object);
        if (!values_[i].tensor || (parameter.written && !can_write(object))) return false;
        if (parameter.written) written_[writes_++] = object;
      } else if (!read_value(kind, object, values_[i])) {
        PyErr_Clear();
        return refuse("an argument has another type");
      }
    }
    const TensorView& first = at(0)->view();
    if (of_.type && first.dtype != of_.type->dtype)
      return refuse("the first array has another dtype");
    return first.device.index >= 0 || refuse("expected an array on a GPU");
  }

  const Tensor* borrow(PyObject* object) {
    const Tensor& tensor = *new (at(count_)) Tensor(arrays_.borrow(object));
    ++count_;
    if (!is_tensor(object)) return &tensor;
    const std::int64_t elements = elements_of(tensor.view());
    if (!tensor.data() && elements != 0) return refuse("a tensor has no memory"), nullptr;
    // A view of negatives has strides, unless it has one element.
    const bool may_be_negative = elements == 1 || !is_contiguous(tensor.view());
    if (may_be_negative && is_negative_view(object)) {
      return refuse("a view has the negatives of its values in memory"), nullptr;
    }
    return &tensor;
  }

  bool borrow_outs() {
    if (given_outs_ == 0) return true;
    outs_ = at(count_);  // they lie side by side, after the arguments
    for (std::size_t i = 0; i < given_outs_; ++i) {
      if (!borrow(out_objects_[i]) || !can_write(out_objects_[i])) return false;
    }
    return memory_is_apart();
  }

  bool can_write(PyObject* array) {
    if (!is_tensor(array)) return true;
    const bool has_version = !is_inference(array);
    if (has_version) with_version_[versioned_++] = array;
    return has_version || inference_mode_is_enabled() || refuse("a tensor has no version counter");
  }

  // Whether no result shares memory with an argument, unless it replaces it, or with another.
  bool memory_is_apart() {
    for (std::size_t i = 0; i < given_outs_; ++i) {
      const TensorView& out = outs_[i].view();
      for (std::size_t j = 0; j < i; ++j) {
        if (share_memory(out, outs_[j].view())) return refuse("out: two arrays share memory");
      }
      for (std::size_t a = 0; a < of_.parameters.size(); ++a) {
        const Tensor* const argument = values_[a].tensor;  // null for what is no tensor
        if (!argument || !share_memory(out, argument->view())) continue;
        if (of_.over_arguments && same_memory(out, argument->view())) continue;
        return refuse("out: it shares memory with an argument");
      }
    }
    return true;
  }

  const EntryPoint& of_;
  Arrays& arrays_;
  std::array<PyObject*, kMostArguments> objects_{};  // null where none is given
  PyObject* out_ = nullptr;
  std::array<PyObject*, kMostResults> out_objects_;
  std::size_t given_outs_ = 0;
  std::array<Value, kMostArguments> values_;  // as many as the operator has
  // Tensors of the arguments, of the caller's arrays for the results, and the results.
  alignas(Tensor) unsigned char storage_[(kMostArguments + 2 * kMostResults) * sizeof(Tensor)];
  std::size_t count_ = 0;
  const Tensor* outs_ = nullptr;
  std::array<PyObject*, kMostArguments> written_, with_version_;
  std::size_t writes_ = 0, versioned_ = 0;
  bool checked_ = false, grad_ = false;
  bool others_ = false;
  const char* reason_ = nullptr;
};

Object call_python(const EntryPoint& of, const PythonCall& given) {
  const Object positional =
      tuple_of(given.count, [&](std::size_t i) { return Object::borrowed(given.args[i]); });
  const Object keywords(checked(PyDict_New()));
  const Py_ssize_t named = given.names ? PyTuple_Size(given.names) : 0;
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject* const value = given.args[given.count + static_cast<std::size_t>(n)];
    if (PyDict_SetItem(keywords.get(), PyTuple_GetItem(given.names, n), value) != 0)
      throw PythonError();
  }
  return Object(checked(PyObject_Call(of.python, positional.get(), keywords.get())));
}

}  // namespace

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

Object call_with(Arrays& arrays, const EntryPoint& of, const PythonCall& given) {
  BoundCall call(of, arrays);
  try {
    if (call.read(given)) return call.run();
  } catch (const Refused&) {
    if (call.has_others()) throw;
  }
  if (!of.python) return Object::borrowed(Py_NotImplemented);
  if (call.has_others()) throw Error(of.name + ": " + call.reason());
  return call_python(of, given);
}

}  // namespace fusedops::python
