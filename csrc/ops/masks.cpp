#include "ops/masks.h"

#include <string>
#include <vector>

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

using Sizes = std::vector<std::int64_t>;

// The sizes of a mask with so many dimensions; each may also be 1.
Sizes sizes_of_mask(const ScoreSizes& of, std::int64_t dim) {
  switch (dim) {
    case 2:
      return {of.batch, of.keys};
    case 3:
      return {of.batch, of.queries, of.keys};
    case 4:
      return {of.batch, of.heads, of.queries, of.keys};
    default:
      return {};
  }
}

bool fits(std::int64_t found, std::int64_t size) {
  return size == kAnyKeys || found == 1 || found == size;
}

std::string listed(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) {
    text += (text.empty() ? "[" : ", ") + (size == kAnyKeys ? "L" : std::to_string(size));
  }
  return text + "]";
}

// `also`: another type that is taken; empty for none.
void check_dtype(const char* op, const Argument& a, const Argument& like, const std::string& also) {
  if (has_dtype(a.tensor, "float32") || has_dtype(a.tensor, like.tensor.dtype_name)) return;
  std::string others = also;
  if (!has_dtype(like.tensor, "float32")) others += also.empty() ? "float32" : ", float32";
  const std::string either = others.empty() ? "" : others + " or ";
  fail(op, a.name, "dtype " + either + like.tensor.dtype_name + " (that of " + like.name + ")",
       a.tensor.dtype_name);
}

}  // namespace

void check_window(const char* op, std::int64_t window) {
  if (window < 0) fail(op, "window", "0 (all keys) or more", std::to_string(window));
}

void check_mask(const char* op, const Argument& mask, const Argument& like,
                const ScoreSizes& scores) {
  if (!has_dtype(mask.tensor, "bool")) check_dtype(op, mask, like, "bool");
  check_same_device(op, mask, like);
  const Sizes sizes = sizes_of_mask(scores, mask.tensor.dim);
  bool all = !sizes.empty();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all = all && fits(mask.tensor.sizes[i], sizes[i]);
  }
  if (all) return;
  fail(op, mask.name,
       "shape " + listed(sizes_of_mask(scores, 2)) + ", " + listed(sizes_of_mask(scores, 3)) +
           " or " + listed(sizes_of_mask(scores, 4)) + ", any of them 1",
       shape_of(mask.tensor));
}

void check_added(const char* op, const Argument& added, const Argument& like) {
  check_dtype(op, added, like, "");
  check_same_device(op, added, like);
}

kernels::ScoreBias::Type type_of(const TensorView& bias, const TensorView& like) {
  using Type = kernels::ScoreBias::Type;
  if (has_dtype(bias, "bool")) return Type::boolean;
  return has_dtype(bias, like.dtype_name) ? Type::like_scores : Type::float32;
}

std::int64_t stride_of(const TensorView& bias, std::int64_t dim) {
  return bias.sizes[dim] == 1 ? 0 : bias.strides[dim];
}

}  // namespace fusedops::ops
