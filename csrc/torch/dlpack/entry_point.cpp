#include "torch/dlpack/entry_point.h"

#include <array>
#include <new>
#include <utility>

#include "families/call.h"
#include "torch/dlpack/frameworks.h"
#include "torch/read_value.h"

namespace fusedops::dlpack {
namespace {

PyObject* out_name() {
  static PyObject* const name = PyUnicode_InternFromString("out");
  return name;
}

[[noreturn]] void refuse_call(const std::string& why) {
  PyErr_SetString(PyExc_TypeError, why.c_str());
  throw PythonError();
}

// The first line of Python's current error, which is cleared.
std::string first_line_of_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Object owned_type(type), owned_value(value), owned_traceback(traceback);
  const Object text(value ? PyObject_Str(value) : nullptr);
  const char* const all = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  PyErr_Clear();
  const std::string whole = all ? all : "not taken by its framework";
  return whole.substr(0, whole.find('\n'));
}

bool same_name(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

// The arguments of a call, in the order of the signature; null where none is given.
struct Bound {
  std::array<PyObject*, kMostArguments> objects{};
  PyObject* out = nullptr;
};

// The errors are those that Python itself gives for a call that does not match the signature.
Bound bind(const EntryPoint& of, const PythonCall& given) {
  if (given.count > of.positional) {
    refuse_call(of.name + "() takes " + std::to_string(of.positional) +
                " positional arguments but " + std::to_string(given.count) + " were given");
  }
  Bound bound;
  for (std::size_t i = 0; i < given.count; ++i) bound.objects[i] = given.args[i];
  const Py_ssize_t named = given.names ? PyTuple_Size(given.names) : 0;
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject* const name = PyTuple_GetItem(given.names, n);
    PyObject** place = same_name(name, out_name()) ? &bound.out : nullptr;
    for (std::size_t i = 0; !place && i < of.arguments.size(); ++i) {
      if (same_name(name, of.arguments[i].name)) place = &bound.objects[i];
    }
    const auto quoted = [&] {
      return std::string("'") + PyUnicode_AsUTF8AndSize(name, nullptr) + "'";
    };
    if (!place) refuse_call(of.name + "() got an unexpected keyword argument " + quoted());
    if (*place) refuse_call(of.name + "() got multiple values for argument " + quoted());
    *place = given.args[given.count + static_cast<std::size_t>(n)];
  }
  return bound;
}

// Whether an object is a plain tensor whose gradient is not asked for.
bool is_plain(PyObject* object, bool grad) {
  return is_tensor(object) && !(grad && requires_grad(object));
}

// Whether all arrays of a direct call are plain tensors, and nobody watches what torch runs.
bool is_plain(const EntryPoint& of, const Bound& bound) {
  if (mode_is_active() || call_is_watched()) return false;
  const bool grad = grad_is_enabled();
  for (std::size_t i = 0; i < of.arguments.size(); ++i) {
    PyObject* const object = bound.objects[i];
    if (of.native.parameters[i].kind != Kind::tensor || object == nullptr || object == Py_None)
      continue;
    if (!is_plain(object, grad)) return false;
  }
  if (bound.out == nullptr || bound.out == Py_None) return true;
  if (!PyTuple_Check(bound.out)) return is_plain(bound.out, grad);
  for (Py_ssize_t i = 0; i < PyTuple_Size(bound.out); ++i) {
    if (!is_plain(PyTuple_GetItem(bound.out, i), grad)) return false;
  }
  return true;
}

// A tensor, a tuple of several, or None: a new reference.
Object results_as_object(const Tensor* results, std::size_t count) {
  const auto object = [&](std::size_t i) { return Object::borrowed(array_of(results[i])); };
  if (count == 0) return Object::borrowed(Py_None);
  if (count == 1) return object(0);
  Object tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  for (std::size_t i = 0; i < count; ++i) {
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), object(i).release());
  }
  return tuple;
}

// The arguments of a call as an operator takes them, and the arrays for its results.
class Arguments {
 public:
  explicit Arguments(const EntryPoint& of) : of_(of) {}
  Arguments(const Arguments&) = delete;
  ~Arguments() {
    for (std::size_t i = 0; i < count_; ++i) at(i)->~Tensor();
  }

  // Throws Error or PythonError for what the entry point does not take; Refused, where Python's has
  // the words. `plain`: is_plain of it.
  void read(const Bound& bound, bool plain) {
    plain_ = plain;
    for (std::size_t i = 0; i < of_.arguments.size(); ++i) {
      const Argument& argument = of_.arguments[i];
      PyObject* const object = bound.objects[i];
      const Kind kind = of_.native.parameters[i].kind;
      values_[i] = argument.value;
      if (object == nullptr) {
        if (argument.has_default) continue;
        refuse_call(of_.name + "() missing required argument: '" + argument.text + "'");
      }
      if (object == Py_None && argument.optional) continue;
      if (kind == Kind::tensor) {
        values_[i].tensor = &add(argument.text, argument.optional, object);
      } else if (!typed::read_value(kind, object, values_[i])) {
        refuse_value(of_, argument.text, argument.optional, kind, object);
      }
    }
    if (of_.type && first().view().dtype != of_.type->dtype) throw Refused(of_.name);
    add_outs(bound.out);
    if (!outs_) return;
    if (!have_versions() || !have_own_memory()) throw Refused(of_.name);
  }

  const Tensor& first() const { return *at(0); }
  // Whether all arrays are torch's, which Python's entry point takes.
  bool of_torch() const { return of_torch_; }

  Object run() {
    const std::size_t count = of_.native.results;
    Tensor* const results = at(count_);
    for (std::size_t i = 0; i < count; ++i) new (at(count_++)) Tensor();
    {
      Arrays framework(of_.name.c_str(), *type_, device_);
      const Call call(of_.name.c_str(), framework, outs_, count);
      of_.native.call(values_.data(), results);
    }
    for (std::size_t i = 0; outs_ && i < count; ++i) {
      if (has_version_[i]) increment_version(array_of(outs_[i]));
    }
    return results_as_object(results, count);
  }

 private:
  Tensor* at(std::size_t i) { return reinterpret_cast<Tensor*>(storage_ + i * sizeof(Tensor)); }
  const Tensor* at(std::size_t i) const {
    return reinterpret_cast<const Tensor*>(storage_ + i * sizeof(Tensor));
  }

  const Tensor& add(const std::string& argument, bool optional, PyObject* object) {
    const ArrayType* const type = array_type_of(of_.name.c_str(), object);
    if (!type) refuse_value(of_, argument, optional, Kind::tensor, object);
    if (type->torch && !plain_) refuse_gradient(object);
    try {
      const DLTensor memory = memory_of(*type, object);
      if (!type_) {
        type_ = type;
        device_ = memory.device;
      }
      of_torch_ = of_torch_ && type->torch;
      const Tensor& tensor = *new (at(count_)) Tensor(borrowed(memory, object));
      ++count_;
      if (!type->torch) return tensor;
      if (is_negative_view(tensor)) {
        throw Error(of_.name + ": " + argument +
                    ": expected a tensor's own values, found a view of their negatives; call "
                    "resolve_neg()");
      }
      if (tensor.data() || elements_of(tensor) == 0) return tensor;
      PyErr_SetString(PyExc_RuntimeError, "expected a tensor with memory, found one without");
      throw PythonError();
    } catch (const PythonError&) {
      const std::string why = first_line_of_error();
      if (type->torch && transform_is_active()) refuse_unseen();
      throw Error(of_.name + ": " + argument + ": " + why);
    }
  }

  [[noreturn]] void refuse_unseen() {
    throw Error(of_.name +
                ": a dispatch mode, a transform of torch.func or forward-mode differentiation is "
                "active, which would not see this call; call fusedops." +
                of_.op);
  }

  void refuse_gradient(PyObject* tensor) {
    if (!checked_) {
      checked_ = true;
      if (mode_is_active()) refuse_unseen();
      grad_ = grad_is_enabled();
    }
    if (grad_ && requires_grad(tensor)) {
      throw Error(of_.name + ": has no gradient; call fusedops." + of_.op +
                  ", or call this one under torch.no_grad()");
    }
  }

  // The arrays that the caller gave for the results lie side by side, after the arguments.
  void add_outs(PyObject* out) {
    if (out == nullptr || out == Py_None) return;
    const auto results = static_cast<Py_ssize_t>(of_.native.results);
    outs_ = at(count_);
    if (results == 1) {
      add("out", true, out);
      return;
    }
    if (!PyTuple_Check(out) || PyTuple_Size(out) != results) {
      refuse_call(of_.name + ": out: expected a tuple of " + std::to_string(results) +
                  " tensors, found " + type_name(Py_TYPE(out)));
    }
    for (Py_ssize_t i = 0; i < results; ++i) add("out", true, PyTuple_GetItem(out, i));
  }

  // Whether torch can count the writes to its tensors.
  bool have_versions() {
    for (std::size_t i = 0; i < of_.native.results; ++i) {
      PyObject* const out = array_of(outs_[i]);
      if (!is_tensor(out)) continue;
      has_version_[i] = !is_inference(out);
      if (!has_version_[i] && !inference_mode_is_enabled()) return false;
    }
    return true;
  }

  // No result may share memory with an argument, unless it replaces it, or with another.
  bool have_own_memory() const {
    for (std::size_t i = 0; i < of_.native.results; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (share_memory(outs_[i], outs_[j])) return false;
      }
      for (std::size_t a = 0; a < of_.arguments.size(); ++a) {
        const Tensor* const argument = values_[a].tensor;  // null for what is no tensor
        if (!argument || !share_memory(outs_[i], *argument)) continue;
        if (!of_.over_arguments || !same_memory(outs_[i], *argument)) return false;
      }
    }
    return true;
  }

  const EntryPoint& of_;
  std::array<Value, kMostArguments> values_;  // as many as the operator has
  // Tensors of the arguments, of the caller's arrays for the results, and the results.
  alignas(Tensor) unsigned char storage_[(kMostArguments + 2 * kMostResults) * sizeof(Tensor)];
  std::size_t count_ = 0;
  const ArrayType* type_ = nullptr;  // of the first array, as is
  DLDevice device_{};
  const Tensor* outs_ = nullptr;
  bool has_version_[kMostResults] = {};  // of the caller's arrays for the results
  bool plain_ = false, checked_ = false, grad_ = false, of_torch_ = true;
};

Object call_slow(const EntryPoint& of, const PythonCall& given) {
  const Object positional(checked(PyTuple_New(static_cast<Py_ssize_t>(given.count))));
  for (std::size_t i = 0; i < given.count; ++i) {
    PyObject* const argument = Object::borrowed(given.args[i]).release();
    if (PyTuple_SetItem(positional.get(), static_cast<Py_ssize_t>(i), argument) != 0) {
      throw PythonError();
    }
  }
  const Object keywords(checked(PyDict_New()));
  const Py_ssize_t named = given.names ? PyTuple_Size(given.names) : 0;
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject* const value = given.args[given.count + static_cast<std::size_t>(n)];
    if (PyDict_SetItem(keywords.get(), PyTuple_GetItem(given.names, n), value) != 0)
      throw PythonError();
  }
  return Object(checked(PyObject_Call(of.slow, positional.get(), keywords.get())));
}

}  // namespace

void refuse_value(const EntryPoint& of, const std::string& argument, bool optional, Kind kind,
                  PyObject* object) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
  PyErr_Clear();
  refuse_call(of.name + ": " + argument + ": expected " + typed::described(kind) +
              (optional ? " or None" : "") + ", found " + type_name(Py_TYPE(object)));
}

Object call_by_type(const EntryPoint& of, const PythonCall& given) {
  Arguments arguments(of);
  try {
    arguments.read(bind(of, given), false);
    return arguments.run();
  } catch (const torchwheel::NoKernel&) {
    // The first call on a GPU, where the loader chooses its kernels; or a GPU that has none.
  } catch (const Refused&) {
    if (!arguments.of_torch()) throw;
  }
  return call_slow(of, given);
}

Object call_directly(const EntryPoint& of, const PythonCall& given) {
  const Bound bound = bind(of, given);
  if (!is_plain(of, bound)) return Object::borrowed(Py_NotImplemented);
  Arguments arguments(of);
  try {
    arguments.read(bound, true);
  } catch (const PythonError&) {
    PyErr_Clear();
    return Object::borrowed(Py_NotImplemented);
  } catch (const Error&) {
    return Object::borrowed(Py_NotImplemented);
  }
  if (arguments.first().view().device.index < 0) return Object::borrowed(Py_NotImplemented);
  try {
    return arguments.run();
  } catch (const torchwheel::NoKernel&) {
    return Object::borrowed(Py_NotImplemented);
  } catch (const Refused&) {
    return Object::borrowed(Py_NotImplemented);
  }
}

}  // namespace fusedops::dlpack
