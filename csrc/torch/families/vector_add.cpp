// The binding of vector_add: the smallest family, and the example of CONTRIBUTING.md.
#include "ops/vector_add.h"

#include "torch/api.h"

namespace fusedops {

struct VectorAdd {
  static Tensor vector_add(const Tensor& a, const Tensor& b, double gamma) {
    constexpr const char* op = "vector_add";
    const TensorView view = Api::view(a);
    ops::check_vector_add(op, view, Api::view(b));
    const Api::Guard guard(view.device.index);
    const Tensor left = Api::contiguous(a), right = Api::contiguous(b);
    Tensor out = Api::empty_like(left);
    ops::vector_add(op, view, gamma, Api::data(out), Api::data(left), Api::data(right),
                    gpu_of(view));
    return out;
  }
};

FUSEDOPS_FAMILY(vector_add, m) { FUSEDOPS_OPERATOR(m, "vector_add", &VectorAdd::vector_add); }

}  // namespace fusedops
