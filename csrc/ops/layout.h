// The checks and the launch of add_padding and pad_transform.
#pragma once

#include <optional>
#include <vector>

#include "kernels/layout.h"
#include "ops/gpu.h"
#include "ops/tensor_view.h"

namespace fusedops::ops {

// The kernel's call, and the sizes of the result.
struct Padded {
  kernels::PadHeads call;
  std::vector<std::int64_t> sizes;
};

void check_add_padding(const char* op, const TensorView& x);
void check_pad_transform(const char* op, const TensorView& x, std::int64_t heads);

// The arguments must be checked. Returns nothing if x must be made contiguous first.
std::optional<Padded> add_padding(const TensorView& x);
std::optional<Padded> pad_transform(const TensorView& x, std::int64_t heads);

void pad_heads(const char* op, const Padded& padded, void* result, const void* x, const Gpu& on);

}  // namespace fusedops::ops
