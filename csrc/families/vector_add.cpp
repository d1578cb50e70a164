// vector_add: the smallest family, and the example of CONTRIBUTING.md.
#include "kernels/vector_add.h"

#include "families/api.h"

namespace fusedops {

struct VectorAddOps {
  static Tensor vector_add(const Tensor& a, const Tensor& b, double gamma) {
    require(is_floating(a) && is_alike(b, a));
    check_on_gpu("a", a);
    const Tensor left = contiguous(a), right = contiguous(b);
    const Tensor out = empty_like(left);
    const std::int64_t elements = elements_of(a);
    if (elements == 0) return out;
    const Gpu on = gpu_of(a);
    check_launch(on, FUSEDOPS_KERNEL(on, vector_add)(a.view().dtype, elements, gamma, out.data(),
                                                     left.data(), right.data(), on.stream));
    return out;
  }
};

FUSEDOPS_FAMILY(vector_add, m) { m.op<&VectorAddOps::vector_add>("vector_add"); }

}  // namespace fusedops
