#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::stable::Tensor;

Tensor axpy_cpu(double a, const Tensor& x, const Tensor& y) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "axpy: float32 expected");
  STD_TORCH_CHECK(x.sizes().equals(y.sizes()), "axpy: tensors of one shape expected");
  const Tensor xs = torch::stable::contiguous(x), ys = torch::stable::contiguous(y);
  Tensor out = torch::stable::empty_like(xs);
  auto* result = static_cast<float*>(out.data_ptr());
  const auto *left = static_cast<const float*>(xs.data_ptr()),
             *right = static_cast<const float*>(ys.data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) result[i] = static_cast<float>(a) * left[i] + right[i];
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY(axpy, m) { m.def("axpy(float a, Tensor x, Tensor y) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(axpy, CPU, m) { m.impl("axpy", TORCH_BOX(&axpy_cpu)); }

PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef module = {
      PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
