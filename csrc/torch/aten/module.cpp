// The Python module fusedops._C: an entry point for each operator and type. Importing it registers
// the operators' kernels too.
#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/entry_points.h"
#include "torch/python/entry_point.h"
#include "torch/python/torch_state.h"

namespace fusedops::python {
namespace {

// torch's tensors, by their C++ objects.
class TorchTensors final : public Arrays {
 public:
  bool takes(PyObject*) override { return false; }

  Tensor borrow(PyObject* tensor) override {
    static PyObject* const cdata = PyUnicode_InternFromString("_cdata");
    const Object address(checked(PyObject_GetAttr(tensor, cdata)));
    void* const impl = PyLong_AsVoidPtr(address.get());
    if (impl == nullptr) throw PythonError();
    return aten::borrowed(impl);
  }

  void call(const EntryPoint& of, const Tensor& first, const Value* values, const Tensor* outs,
            Tensor* results) override {
    const int gpu = first.view().device.index;
    if (!aten::call(of.name.c_str(), of.native, gpu, values, outs, results)) throw PythonError();
  }

  Object object_of(const Tensor& result) override {
    return Object(checked(aten::object_of(result)));
  }
};

}  // namespace

Object call(const EntryPoint& of, const PythonCall& given) {
  TorchTensors tensors;
  return call_with(tensors, of, given);
}

}  // namespace fusedops::python

namespace {

namespace py = pybind11;

// Another torch lays out an at::Tensor in another way: the module would crash, so it is refused.
void check_torch() {
  const std::string built_for = fusedops::aten::torch_release();
  const auto found = py::module_::import("torch").attr("__version__").cast<std::string>();
  if (found.compare(0, built_for.size() + 1, built_for + ".") != 0) {
    throw py::import_error("built for torch " + built_for + ", found torch " + found);
  }
}

py::list names() { return py::module_::import("fusedops.typed").attr("names")(); }

// An entry point is made when it is first asked for; the package keeps it.
py::object attribute(const std::string& name) {
  if (!names().contains(name)) {
    throw py::attribute_error("module 'fusedops._C' has no attribute '" + name + "'");
  }
  return py::module_::import("fusedops").attr(name.c_str());
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  check_torch();
  try {
    fusedops::python::import_torch();
  } catch (const fusedops::python::PythonError&) {
    throw py::error_already_set();
  }
  fusedops::aten::register_operators();
  if (PyModule_AddFunctions(m.ptr(), fusedops::python::module_functions) != 0) {
    throw py::error_already_set();
  }
  m.def("__getattr__", &attribute);
  m.def("__dir__", &names);
}
