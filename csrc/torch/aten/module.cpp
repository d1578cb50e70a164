// The Python module fusedops._C: an entry point for each operator and type. Importing it registers
// the operators' kernels too (typed.cpp).
#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/entry_point.h"
#include "torch/aten/typed.h"

namespace {

namespace py = pybind11;
namespace typed = fusedops::typed;

// Defines `op` for every type.
void define(py::module_& m, const typed::Operator& op) {
  for (const typed::Type& type : typed::kTypes) {
    const typed::EntryPoint call(op, type);
    const std::string help = call.name() + op.signature + "\n--\n\n" + op.name + " of " +
                             type.name + " tensors, without a gradient.";
    m.def(call.name().c_str(), call, help.c_str());
  }
}

// Another torch lays out an at::Tensor in another way: the module would crash, so it is refused.
void check_torch() {
  const std::string built_for = typed::torch_release();
  const auto found = py::module_::import("torch").attr("__version__").cast<std::string>();
  if (found.compare(0, built_for.size() + 1, built_for + ".") != 0) {
    throw py::import_error("built for torch " + built_for + ", found torch " + found);
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  check_torch();
  py::options options;
  options.disable_function_signatures();  // the help text has one that inspect.signature reads
  for (const typed::Operator& op : typed::register_operators()) define(m, op);
}
