// An operator for one type, as Python calls it.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/python_values.h"
#include "torch/aten/typed.h"

namespace fusedops::typed {

class EntryPoint {
 public:
  EntryPoint(const Operator& op, const Type& type)
      : op_(op), type_(type), name_(std::string(op.name) + "_" + type.suffix) {
    py::list names;
    for (const Argument& argument : op.arguments) {
      // Interned, as the names in a call are: they are then found by their address.
      names.append(py::reinterpret_steal<py::str>(PyUnicode_InternFromString(argument.name)));
      if (!argument.keyword_only) ++positional_;
    }
    names_ = py::tuple(names);
  }

  const std::string& name() const { return name_; }

  py::object operator()(const py::args& args, const py::kwargs& keywords) const {
    if (args.size() > positional_) refuse_more(args.size());
    Value values[kMostArguments];
    std::size_t named = 0;
    for (std::size_t i = 0; i < op_.arguments.size(); ++i) {
      const Argument& argument = op_.arguments[i];
      PyObject* object = i < args.size() ? PyTuple_GET_ITEM(args.ptr(), i) : nullptr;
      if (PyObject* found = look_up(keywords, i)) {
        if (object) refuse("got multiple values for argument", argument.name);
        object = found;
        ++named;
      }
      if (!object && !argument.has_default) refuse("missing required argument:", argument.name);
      values[i] = object ? value_of(name_, argument, object) : Value{};
    }
    if (named < keywords.size()) refuse_unknown(keywords);
    return results_of(call(op_, type_, values));
  }

 private:
  PyObject* look_up(const py::kwargs& keywords, std::size_t i) const {
    if (keywords.empty()) return nullptr;
    return PyDict_GetItemWithError(keywords.ptr(), PyTuple_GET_ITEM(names_.ptr(), i));
  }

  // A tensor, a tuple of several, or None.
  static py::object results_of(const Output& output) {
    py::tuple results(output.count);
    bool failed = false;
    for (std::size_t i = 0; i < output.count; ++i) {
      failed |= output.tensors[i] == nullptr;
      PyTuple_SET_ITEM(results.ptr(), i, output.tensors[i]);  // takes the reference over
    }
    if (failed) throw py::error_already_set();
    if (output.count == 0) return py::none();
    return output.count == 1 ? py::object(results[0]) : results;
  }

  // Python's words for a call that does not fit.
  [[noreturn]] void refuse(const std::string& why, const std::string& argument) const {
    throw py::type_error(name_ + "() " + why + " '" + argument + "'");
  }

  [[noreturn]] void refuse_more(std::size_t given) const {
    throw py::type_error(name_ + "() takes " + std::to_string(positional_) +
                         " positional arguments but " + std::to_string(given) + " were given");
  }

  void refuse_unknown(const py::kwargs& keywords) const {
    for (const auto& [name, unused] : keywords) {
      if (!names_.contains(name)) refuse("got an unexpected keyword argument", py::str(name));
    }
  }

  const Operator& op_;
  const Type& type_;
  std::string name_;
  py::tuple names_;
  std::size_t positional_ = 0;
};

}  // namespace fusedops::typed
