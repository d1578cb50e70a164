// The Python module dlpack of a universal wheel: entry points by type (bias_gelu_fp16 …) and direct
// calls over DLPack.
#include <exception>

#include "torch/dlpack/arrays.h"

namespace fusedops::python {

Object call(const EntryPoint& of, const PythonCall& given) {
  dlpack::ExchangedArrays arrays;
  return call_with(arrays, of, given);
}

}  // namespace fusedops::python

PyMODINIT_FUNC PyInit_dlpack() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "dlpack",
                                   "Entry points by type, over DLPack.",
                                   -1,
                                   fusedops::python::module_functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  try {
    fusedops::dlpack::import_torch();
    return PyModule_Create(&definition);
  } catch (const fusedops::python::PythonError&) {
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}
