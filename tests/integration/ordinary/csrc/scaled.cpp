// What torch/extension.h includes of torch, as far as it is needed here: all of it takes 17 s.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/utils/pybind.h>

at::Tensor scale(const at::Tensor& x, double by) {
  TORCH_CHECK(x.dim() > 0, "a tensor with a dimension expected");
  return at::mul(x, by);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
