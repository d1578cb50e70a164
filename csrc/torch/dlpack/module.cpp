// The Python module dlpack of a universal wheel: makes entry points by type (bias_gelu_fp16 …) that
// call the operators' front ends without torch's dispatcher. typed.py says what their signatures
// are.
#include <array>
#include <deque>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "torch/dlpack/frameworks.h"
#include "torch/dlpack/registrar.h"
#include "torch/read_value.h"

namespace fusedops::dlpack {
namespace {

using typed::Kind;
using typed::Type;

constexpr std::size_t kMostArguments = 16, kMostResults = 4;

struct Argument {
  PyObject* name;  // interned: Python interns the names in a call, so most are equal by address
  std::string text;
  bool optional;  // takes None
  bool keyword_only;
  bool has_default;
  Value value;  // by default
  std::string default_text;
};

struct EntryPoint {
  std::string name;
  std::string op;
  std::string help;
  const Type& type;
  bool over_arguments;  // a result may replace an argument of its shape
  Kernel kernel;
  std::vector<Argument> arguments;
  std::size_t positional;  // so many can be given by position
  PyObject* slow;          // the same in Python, through the dispatcher
  PyMethodDef method;
};

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

[[noreturn]] void refuse_value(const EntryPoint& of, const std::string& argument, bool optional,
                               Kind kind, PyObject* object) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
  PyErr_Clear();
  refuse_call(of.name + ": " + argument + ": expected " + typed::described(kind) +
              (optional ? " or None" : "") + ", found " + type_name(Py_TYPE(object)));
}

// The arguments of a call, in the order of the signature; null where none is given.
struct Bound {
  std::array<PyObject*, kMostArguments> objects{};
  PyObject* out = nullptr;
};

// The errors are those that Python itself gives for a call that does not match the signature.
Bound bind(const EntryPoint& of, PyObject* const* args, std::size_t count, PyObject* names) {
  if (count > of.positional) {
    refuse_call(of.name + "() takes " + std::to_string(of.positional) +
                " positional arguments but " + std::to_string(count) + " were given");
  }
  Bound bound;
  for (std::size_t i = 0; i < count; ++i) bound.objects[i] = args[i];
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject* const name = PyTuple_GetItem(names, n);
    PyObject** place = same_name(name, out_name()) ? &bound.out : nullptr;
    for (std::size_t i = 0; !place && i < of.arguments.size(); ++i) {
      if (same_name(name, of.arguments[i].name)) place = &bound.objects[i];
    }
    const auto quoted = [&] {
      return std::string("'") + PyUnicode_AsUTF8AndSize(name, nullptr) + "'";
    };
    if (!place) refuse_call(of.name + "() got an unexpected keyword argument " + quoted());
    if (*place) refuse_call(of.name + "() got multiple values for argument " + quoted());
    *place = args[count + static_cast<std::size_t>(n)];
  }
  return bound;
}

// The arrays of a call: first the arguments, then those that the caller gave for the results.
class Arrays {
 public:
  explicit Arrays(const EntryPoint& of) : of_(of) {}
  Arrays(const Arrays&) = delete;
  ~Arrays() {
    for (std::size_t i = 0; i < count_; ++i) at(i)->~Array();
  }

  const Array& add(const std::string& argument, bool optional, PyObject* object) {
    const Framework* const framework = framework_of(of_.name.c_str(), object);
    if (!framework) refuse_value(of_, argument, optional, Kind::tensor, object);
    if (framework->torch) refuse_gradient(object);
    try {
      const Array& array = *new (at(count_)) Array(*framework, Object::borrowed(object));
      ++count_;
      if (!framework->torch) return array;
      if (is_negative_view(array)) {
        throw Error(of_.name + ": " + argument +
                    ": expected a tensor's own values, found a view of their negatives; call "
                    "resolve_neg()");
      }
      if (array.view().data || elements_of(array.view()) == 0) return array;
      PyErr_SetString(PyExc_RuntimeError, "expected a tensor with memory, found one without");
      throw PythonError();
    } catch (const PythonError&) {
      const std::string why = first_line_of_error();
      if (framework->torch && transform_is_active()) refuse_unseen();
      throw Error(of_.name + ": " + argument + ": " + why);
    }
  }

 private:
  Array* at(std::size_t i) { return reinterpret_cast<Array*>(storage_ + i * sizeof(Array)); }

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

  const EntryPoint& of_;
  alignas(Array) unsigned char storage_[(kMostArguments + kMostResults) * sizeof(Array)];
  std::size_t count_ = 0;
  bool checked_ = false, grad_ = false;
};

// Makes a call this thread's current one while it lives.
class Entered {
 public:
  explicit Entered(Call& call) : before_(std::exchange(current_call(), &call)) {}
  Entered(const Entered&) = delete;
  ~Entered() { current_call() = before_; }

 private:
  Call* const before_;
};

// Adds the arrays that the caller gave for the results, side by side. Returns the first; null if
// none are given.
const Array* add_outs(const EntryPoint& of, Arrays& arrays, PyObject* out) {
  if (out == nullptr || out == Py_None) return nullptr;
  const int results = of.kernel.results;
  if (results == 1) return &arrays.add("out", true, out);
  if (!PyTuple_Check(out) || PyTuple_Size(out) != results) {
    refuse_call(of.name + ": out: expected a tuple of " + std::to_string(results) +
                " tensors, found " + type_name(Py_TYPE(out)));
  }
  const Array* first = nullptr;
  for (int i = 0; i < results; ++i) {
    const Array& added = arrays.add("out", true, PyTuple_GetItem(out, i));
    if (i == 0) first = &added;
  }
  return first;
}

// No result may share memory with an argument, unless it replaces it, or with another. The words
// are those of fusedops/outputs.py.
void check_memory(const EntryPoint& of, const Array* outs,
                  const std::array<Value, kMostArguments>& values) {
  const int results = of.kernel.results;
  for (int i = 0; i < results; ++i) {
    for (int j = 0; j < i; ++j) {
      if (share_memory(outs[i], outs[j])) {
        fail(of.name.c_str(), "out", "tensors that share no memory", "two that do");
      }
    }
    for (std::size_t a = 0; a < of.arguments.size(); ++a) {
      const Array* const array = of.kernel.kinds[a] == Kind::tensor ? values[a].array : nullptr;
      if (!array || !share_memory(outs[i], *array)) continue;
      if (of.over_arguments && same_memory(outs[i], *array)) continue;
      fail(of.name.c_str(), "out",
           of.over_arguments ? "memory of its own, or all of an argument's" : "memory of its own",
           "memory that it shares with " + of.arguments[a].text);
    }
  }
}

Object call(const EntryPoint& of, const Bound& bound) {
  Arrays arrays(of);
  std::array<Value, kMostArguments> values;
  const Array* first = nullptr;
  const char* first_name = nullptr;
  for (std::size_t i = 0; i < of.arguments.size(); ++i) {
    const Argument& argument = of.arguments[i];
    PyObject* const object = bound.objects[i];
    const Kind kind = of.kernel.kinds[i];
    values[i] = argument.value;
    if (object == nullptr) {
      if (argument.has_default) continue;
      refuse_call(of.name + "() missing required argument: '" + argument.text + "'");
    }
    if (object == Py_None && argument.optional) continue;
    if (kind == Kind::tensor) {
      values[i].array = &arrays.add(argument.text, argument.optional, object);
      if (!first) first_name = argument.text.c_str(), first = values[i].array;
    } else if (!typed::read_value(kind, object, values[i])) {
      refuse_value(of, argument.text, argument.optional, kind, object);
    }
  }
  const TensorView& view = first->view();
  if (view.dtype != of.type.dtype) {
    fail(of.name.c_str(), first_name, std::string("dtype ") + of.type.name, view.dtype_name);
  }
  const Array* const outs = add_outs(of, arrays, bound.out);
  if (outs) check_memory(of, outs, values);
  Call current{of.name.c_str(), first->framework(), first->theirs().device, outs};
  const Entered entered(current);
  Object result(of.kernel.call(values.data()));
  for (int i = 0; outs && i < of.kernel.results; ++i) {
    if (outs[i].framework().torch) increment_version(outs[i].object().get());
  }
  return result;
}

PyObject* call_slow(const EntryPoint& of, PyObject* const* args, std::size_t count,
                    PyObject* names) {
  const Object positional(checked(PyTuple_New(static_cast<Py_ssize_t>(count))));
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const argument = Object::borrowed(args[i]).release();
    if (PyTuple_SetItem(positional.get(), static_cast<Py_ssize_t>(i), argument) != 0) {
      throw PythonError();
    }
  }
  const Object keywords(checked(PyDict_New()));
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject* const value = args[count + static_cast<std::size_t>(n)];
    if (PyDict_SetItem(keywords.get(), PyTuple_GetItem(names, n), value) != 0) throw PythonError();
  }
  return PyObject_Call(of.slow, positional.get(), keywords.get());
}

// Runs `function`; an exception of C++ becomes one of Python, and null.
template <class Function>
PyObject* guarded(const Function& function) {
  try {
    return function();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* python_call(PyObject* self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
  const auto& of = *static_cast<const EntryPoint*>(PyCapsule_GetPointer(self, nullptr));
  const auto count = static_cast<std::size_t>(given);
  return guarded([&]() -> PyObject* {
    try {
      return call(of, bind(of, args, count, names)).release();
    } catch (const torchwheel::NoKernel&) {
      // The first call on a GPU, where the loader chooses its kernels; or a GPU that has none.
      return call_slow(of, args, count, names);
    }
  });
}

// The arguments of an operator, as typed.py lists them: (name, optional, keyword_only, has_default,
// default) each.
std::vector<Argument> arguments_of(const EntryPoint& of, PyObject* list) {
  std::vector<Argument> arguments;
  for (Py_ssize_t i = 0; i < PyTuple_Size(list); ++i) {
    const char* name = nullptr;
    int optional = 0, keyword_only = 0, has_default = 0;
    PyObject* value = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "spppO", &name, &optional, &keyword_only,
                          &has_default, &value)) {
      throw PythonError();
    }
    Argument argument{checked(PyUnicode_InternFromString(name)),
                      name,
                      optional != 0,
                      keyword_only != 0,
                      has_default != 0,
                      Value{},
                      {}};
    const Kind kind = of.kernel.kinds[i];
    if (has_default && value != Py_None) {
      if (!typed::read_value(kind, value, argument.value))
        refuse_value(of, name, false, kind, value);
      if (kind == Kind::text) argument.default_text = argument.value.text;
    }
    arguments.push_back(std::move(argument));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (of.kernel.kinds[i] == Kind::text) {
      arguments[i].value.text = arguments[i].default_text.c_str();
    }
  }
  return arguments;
}

const Kernel* kernel_of(const std::string& op) {
  for (const Kernel& kernel : kernels()) {
    if (op == kernel.name) return &kernel;
  }
  return nullptr;
}

// entry_point(op, suffix, arguments, results, over_arguments, help, slow): the function, or None if
// there is no kernel for it here.
PyObject* entry_point(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    static std::deque<EntryPoint> all;  // a deque does not move its elements
    const char *op = nullptr, *suffix = nullptr, *help = nullptr;
    PyObject *list = nullptr, *slow = nullptr;
    int results = 0, over_arguments = 0;
    if (!PyArg_ParseTuple(args, "ssO!ipsO", &op, &suffix, &PyTuple_Type, &list, &results,
                          &over_arguments, &help, &slow)) {
      return nullptr;
    }
    const Kernel* const kernel = kernel_of(op);
    const Type* type = nullptr;
    for (const Type& one : typed::kTypes) {
      if (std::string(suffix) == one.suffix) type = &one;
    }
    if (!kernel || !type) return Object::borrowed(Py_None).release();
    const auto count = static_cast<std::size_t>(PyTuple_Size(list));
    if (count != kernel->arguments || count > kMostArguments || results != kernel->results) {
      throw Error(std::string(op) + ": expected the schema of the module's kernel, found " +
                  std::to_string(count) + " arguments and " + std::to_string(results) + " results");
    }
    EntryPoint& made = all.emplace_back(EntryPoint{std::string(op) + "_" + suffix,
                                                   op,
                                                   help,
                                                   *type,
                                                   over_arguments != 0,
                                                   *kernel,
                                                   {},
                                                   0,
                                                   nullptr,
                                                   {}});
    made.arguments = arguments_of(made, list);
    for (const Argument& argument : made.arguments) made.positional += !argument.keyword_only;
    made.slow = Object::borrowed(slow).release();
    made.method = {made.name.c_str(),
                   reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&python_call)),
                   METH_FASTCALL | METH_KEYWORDS, made.help.c_str()};
    const Object self(checked(PyCapsule_New(&made, nullptr, nullptr)));
    return PyCFunction_NewEx(&made.method, self.get(), nullptr);
  });
}

PyMethodDef methods[] = {
    {"entry_point", entry_point, METH_VARARGS, "Make the entry point of an operator and a type."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dlpack",
                          "Entry points by type, over DLPack.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace fusedops::dlpack

PyMODINIT_FUNC PyInit_dlpack() {
  return fusedops::dlpack::guarded([]() -> PyObject* {
    fusedops::dlpack::import_torch();
    return PyModule_Create(&fusedops::dlpack::definition);
  });
}
