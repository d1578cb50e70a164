// The Python module dlpack of a universal wheel: makes entry points by type (bias_gelu_fp16 …) and
// direct calls, both of which call the operators without torch's dispatcher. typed.py
// says what their signatures are.
#include <deque>
#include <exception>
#include <new>
#include <string>

#include "torch/dlpack/entry_point.h"
#include "torch/dlpack/frameworks.h"
#include "torch/read_value.h"

namespace fusedops::dlpack {
namespace {

using typed::Type;

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
  const PythonCall call{args, static_cast<std::size_t>(given), names};
  return guarded([&] { return (of.type ? call_by_type : call_directly)(of, call).release(); });
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
    const Kind kind = of.native.parameters[i].kind;
    if (has_default && value != Py_None) {
      if (!typed::read_value(kind, value, argument.value))
        refuse_value(of, name, false, kind, value);
      if (kind == Kind::text) argument.default_text = argument.value.text;
    }
    arguments.push_back(std::move(argument));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (of.native.parameters[i].kind == Kind::text) {
      arguments[i].value.text = arguments[i].default_text.c_str();
    }
  }
  return arguments;
}

const Operator* find_operator(const std::string& name) {
  for (const Operator& op : operators()) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

// entry_point(op, suffix, arguments, results, over_arguments, help, slow): the function, or None if
// the module does not have it. Without a suffix it is the direct call of all types, and `slow`
// is not called.
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
    const Operator* const native = find_operator(op);
    const Type* type = nullptr;
    for (const Type& one : typed::kTypes) {
      if (std::string(suffix) == one.suffix) type = &one;
    }
    const bool by_type = *suffix != '\0';
    if (!native || (by_type && !type)) return Object::borrowed(Py_None).release();
    const auto count = static_cast<std::size_t>(PyTuple_Size(list));
    if (count != native->arguments || static_cast<std::size_t>(results) != native->results) {
      throw Error(std::string(op) + ": expected the schema of the module's operator, found " +
                  std::to_string(count) + " arguments and " + std::to_string(results) + " results");
    }
    EntryPoint& made = all.emplace_back(EntryPoint{by_type ? std::string(op) + "_" + suffix : op,
                                                   op,
                                                   help,
                                                   type,
                                                   over_arguments != 0,
                                                   *native,
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
