#include <torch/extension.h>

at::Tensor scale(const at::Tensor& x, double by) {
  TORCH_CHECK(x.dim() > 0, "a tensor with a dimension expected");
  return x * by;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
