#include "families/masks.h"

namespace fusedops {

bool is_mask(const TensorView& mask, const TensorView& like, const ScoreSizes& scores) {
  if (mask.dtype != DType::boolean && !is_added(mask, like)) return false;
  if (!same_device(mask, like) || mask.dim < 2 || mask.dim > 4) return false;
  const auto fits = [&](std::int64_t dim, std::int64_t size) {
    return size == kAnyKeys || mask.sizes[dim] == 1 || mask.sizes[dim] == size;
  };
  return fits(0, scores.batch) && fits(mask.dim - 1, scores.keys) &&
         (mask.dim < 3 || fits(mask.dim - 2, scores.queries)) &&
         (mask.dim < 4 || fits(1, scores.heads));
}

bool is_added(const TensorView& added, const TensorView& like) {
  return (added.dtype == DType::float32 || added.dtype == like.dtype) && same_device(added, like);
}

kernels::ScoreBias::Type type_of(const TensorView& bias, const TensorView& like) {
  using Type = kernels::ScoreBias::Type;
  if (bias.dtype == DType::boolean) return Type::boolean;
  return bias.dtype == like.dtype ? Type::like_scores : Type::float32;
}

std::int64_t stride_of(const TensorView& bias, std::int64_t dim) {
  return bias.sizes[dim] == 1 ? 0 : bias.strides[dim];
}

}  // namespace fusedops
