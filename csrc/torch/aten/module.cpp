// The Python module fusedops._C: an entry point per operator and type. Importing it also registers
// the operators' kernels (typed.cpp).
#include <pybind11/pybind11.h>

#include <string>

#include "torch/aten/typed.h"

// torch.Tensor; of torch/csrc/autograd/python_variable.h, which would bring all of ATen.
extern PyObject* THPVariableClass;

namespace pybind11::detail {

template <>
struct type_caster<fusedops::typed::Input> {
  PYBIND11_TYPE_CASTER(fusedops::typed::Input, const_name("torch.Tensor"));

  bool load(handle source, bool) {
    const int is_tensor = PyObject_IsInstance(source.ptr(), THPVariableClass);
    if (is_tensor < 0) throw error_already_set();
    if (is_tensor == 0) {
      throw type_error(std::string("expected a torch.Tensor, found ") +
                       Py_TYPE(source.ptr())->tp_name);
    }
    value.impl = PyLong_AsVoidPtr(source.attr("_cdata").ptr());
    if (value.impl == nullptr) throw error_already_set();
    return true;
  }
};

template <>
struct type_caster<fusedops::typed::Output> {
  static constexpr auto name = const_name("torch.Tensor");

  static handle cast(fusedops::typed::Output output, return_value_policy, handle) {
    if (output.tensor == nullptr) throw error_already_set();
    return output.tensor;
  }
};

}  // namespace pybind11::detail

namespace {

namespace py = pybind11;
namespace typed = fusedops::typed;
using fusedops::DType;

constexpr typed::Type kTypes[] = {{"fp32", DType::float32, "float32"},
                                  {"fp16", DType::float16, "float16"},
                                  {"bf16", DType::bfloat16, "bfloat16"},
                                  {"fp64", DType::float64, "float64"}};

// Defines `op` for every type. One lambda per signature, not per operator and type: each is 0.1 s
// of the compiler's time.
template <class... Arguments, class... Extra>
void define(py::module_& m, const char* op,
            typed::Output (*call)(const typed::Entry&, Arguments...), const py::arg& first,
            const Extra&... extra) {
  for (const typed::Type& type : kTypes) {
    const typed::Entry entry{op, first.name, type};
    m.def((std::string(op) + "_" + type.suffix).c_str(),
          [call, entry](Arguments... arguments) { return call(entry, arguments...); }, first,
          extra...);
  }
}

// An at::Tensor of another torch is laid out otherwise: rather no kernels than a crash.
void check_torch() {
  const std::string built_for = typed::torch_release();
  const auto found = py::module_::import("torch").attr("__version__").cast<std::string>();
  if (found.compare(0, built_for.size() + 1, built_for + ".") != 0) {
    throw py::import_error("built for torch " + built_for + ", found torch " + found);
  }
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  using py::arg;
  check_torch();
  typed::register_operators();
  define(m, "vector_add", &typed::vector_add, arg("a"), arg("b"), py::kw_only(),
         arg("gamma") = 1.0);
  define(m, "bias_add", &typed::bias_add, arg("x"), arg("bias"));
  define(m, "bias_relu", &typed::bias_relu, arg("x"), arg("bias"));
  define(m, "bias_gelu", &typed::bias_gelu, arg("x"), arg("bias"), py::kw_only(),
         arg("approximate") = "tanh");
}
