// vector_add: the smallest family, and the example of CONTRIBUTING.md.
#include "ops/vector_add.h"

#include "families/api.h"

namespace fusedops {

struct VectorAdd {
  static Tensor vector_add(const Tensor& a, const Tensor& b, double gamma) {
    constexpr const char* op = "vector_add";
    const TensorView& view = a.view();
    ops::check_vector_add(op, view, b.view());
    const Tensor left = contiguous(a), right = contiguous(b);
    Tensor out = empty_like(left);
    ops::vector_add(op, view, gamma, out.data(), left.data(), right.data(), gpu_of(view));
    return out;
  }
};

FUSEDOPS_FAMILY(vector_add, m) { m.op<&VectorAdd::vector_add>("vector_add"); }

}  // namespace fusedops
