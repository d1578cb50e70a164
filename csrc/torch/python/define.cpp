// The function of a module that makes its entry points.
#include <deque>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "torch/python/entry_point.h"

namespace fusedops::python {
namespace {

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
  const auto& of = **static_cast<const EntryPoint**>(PyModule_GetState(self));
  return guarded(
      [&] { return call(of, PythonCall{args, static_cast<std::size_t>(given), names}).release(); });
}

// A parameter as typed.py lists it: (name, optional, keyword_only, written, has_default, default).
SchemaParameter parameter_of(const EntryPoint& of, Kind kind, PyObject* listed) {
  const char* name = nullptr;
  int optional = 0, keyword_only = 0, written = 0, has_default = 0;
  PyObject* value = nullptr;
  if (!PyArg_ParseTuple(listed, "sppppO", &name, &optional, &keyword_only, &written, &has_default,
                        &value)) {
    throw PythonError();
  }
  SchemaParameter parameter{checked(PyUnicode_InternFromString(name)),
                            optional != 0,
                            keyword_only != 0,
                            has_default != 0,
                            written != 0,
                            Value{},
                            {}};
  if (has_default && value != Py_None && !read_value(kind, value, parameter.value)) {
    PyErr_Clear();
    throw std::invalid_argument(of.name + ": the default of " + name + " is of another type");
  }
  if (has_default && kind == Kind::text) parameter.default_text = parameter.value.text;
  return parameter;
}

const Operator* find_operator(const std::string& name) {
  for (const Operator& op : operators()) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

const TypeSuffix* find_type(const std::string& suffix) {
  for (const TypeSuffix& type : kTypes) {
    if (suffix == type.suffix) return &type;
  }
  return nullptr;
}

// Makes a function of the entry point. It belongs to a module of its own, as pickle demands of a
// function that it finds by the name.
PyObject* function_of(EntryPoint& made, const char* package) {
  made.method = {made.name.c_str(),
                 reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&python_call)),
                 METH_FASTCALL | METH_KEYWORDS, made.help.c_str()};
  made.owner = {PyModuleDef_HEAD_INIT,
                package,
                nullptr,
                sizeof(EntryPoint*),
                nullptr,
                nullptr,
                nullptr,
                nullptr,
                nullptr};
  const Object owner(checked(PyModule_Create(&made.owner)));
  *static_cast<const EntryPoint**>(PyModule_GetState(owner.get())) = &made;
  const Object name(checked(PyUnicode_InternFromString(package)));
  return PyCFunction_NewEx(&made.method, owner.get(), name.get());
}

// None if the module does not have the operator.
PyObject* entry_point(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    static std::deque<EntryPoint> all;  // a deque does not move its elements
    const char *package = nullptr, *op = nullptr, *suffix = nullptr, *help = nullptr;
    PyObject *list = nullptr, *python = nullptr;
    int results = 0, over_arguments = 0;
    if (!PyArg_ParseTuple(args, "sssO!ipsO", &package, &op, &suffix, &PyTuple_Type, &list, &results,
                          &over_arguments, &help, &python)) {
      return nullptr;
    }
    const Operator* const native = find_operator(op);
    const TypeSuffix* const type = find_type(suffix);
    const bool by_type = *suffix != '\0';
    if (!native || (by_type && !type)) return Object::borrowed(Py_None).release();
    const auto count = static_cast<std::size_t>(PyTuple_Size(list));
    if (count != native->arguments || static_cast<std::size_t>(results) != native->results) {
      throw std::invalid_argument(
          std::string(op) + ": expected the schema of the module's operator, found " +
          std::to_string(count) + " arguments and " + std::to_string(results) + " results");
    }
    EntryPoint& made = all.emplace_back(EntryPoint{by_type ? std::string(op) + "_" + suffix : op,
                                                   help,
                                                   type,
                                                   over_arguments != 0,
                                                   *native,
                                                   {},
                                                   0,
                                                   0,
                                                   nullptr,
                                                   {},
                                                   {}});
    made.parameters.reserve(count);  // a default's text stays where it is
    for (std::size_t i = 0; i < count; ++i) {
      const Kind kind = native->parameters[i].kind;
      PyObject* const listed = PyTuple_GetItem(list, static_cast<Py_ssize_t>(i));
      SchemaParameter& parameter = made.parameters.emplace_back(parameter_of(made, kind, listed));
      if (kind == Kind::text) parameter.value.text = parameter.default_text.c_str();
      made.positional += !parameter.keyword_only;
      made.written += parameter.written;
    }
    if (by_type) made.python = Object::borrowed(python).release();
    return function_of(made, package);
  });
}

}  // namespace

PyMethodDef module_functions[] = {
    {"entry_point", entry_point, METH_VARARGS, "Make the entry point of an operator and a type."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace fusedops::python
