// add_padding and pad_transform: what is allowed, and the launch.
#pragma once

#include <optional>
#include <vector>

#include "kernels/layout.h"
#include "ops/tensor_view.h"
#include "platform/runtime.h"

namespace fusedops::ops {

// What is to be computed and the sizes of the result. Nothing where x must first be made
// contiguous.
struct Padded {
  kernels::PadHeads call;
  std::vector<std::int64_t> sizes;
};

void check_add_padding(const char* op, const TensorView& x);
void check_pad_transform(const char* op, const TensorView& x, std::int64_t heads);

// Of checked arguments; nothing if x lies so that it must be made contiguous first.
std::optional<Padded> add_padding(const TensorView& x);
std::optional<Padded> pad_transform(const TensorView& x, std::int64_t heads);

void pad_heads(const char* op, const Padded& padded, void* result, const void* x,
               gpu::Stream stream);

}  // namespace fusedops::ops
