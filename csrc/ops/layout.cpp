#include "ops/layout.h"

#include <string>

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

constexpr std::int64_t kWidths[] = {32, 64, 128};  // widths of padded heads

std::int64_t padded_width(std::int64_t width) {
  for (const std::int64_t wide : kWidths) {
    if (width <= wide) return wide;
  }
  return 0;
}

void check_width(const char* op, std::int64_t width) {
  if (padded_width(width) != 0) return;
  fail(op, "x", "heads of at most 128 elements", std::to_string(width));
}

// Sets the widths, and turns strides from elements into bytes.
kernels::PadHeads in_bytes(const TensorView& x, kernels::PadHeads call, std::int64_t width) {
  const int size = element_size(x.dtype);
  call.head_bytes = static_cast<int>(width) * size;
  call.padded_bytes = static_cast<int>(padded_width(width)) * size;
  call.batch_stride *= size;
  call.token_stride *= size;
  call.head_stride *= size;
  return call;
}

}  // namespace

void check_add_padding(const char* op, const TensorView& x) {
  check_rows(op, {"x", x});
  check_width(op, x.sizes[x.dim - 1]);
  check_on_gpu(op, {"x", x});
}

void check_pad_transform(const char* op, const TensorView& x, std::int64_t heads) {
  check_floating(op, {"x", x});
  if (x.dim != 3) fail(op, "x", "shape [B, S, heads * D]", shape_of(x));
  if (heads < 1 || x.sizes[2] % heads != 0) {
    fail(op, "heads", "a divisor of " + std::to_string(x.sizes[2]) + " (the last dimension of x)",
         std::to_string(heads));
  }
  check_width(op, x.sizes[2] / heads);
  check_on_gpu(op, {"x", x});
}

std::optional<Padded> add_padding(const TensorView& x) {
  if (!has_unit_stride(x)) return std::nullopt;
  const std::int64_t width = x.sizes[x.dim - 1];
  std::vector<std::int64_t> sizes(x.sizes, x.sizes + x.dim);
  sizes.back() = padded_width(width);
  // The innermost dimension becomes the kernel's heads. The dimensions around it become one batch
  // dimension, if a single stride describes them.
  kernels::PadHeads call{1, 1, 1, 0, 0, 0, 0, 0};
  if (x.dim >= 2) {
    call.heads = x.sizes[x.dim - 2];
    call.head_stride = x.strides[x.dim - 2];
  }
  for (std::int64_t i = x.dim - 3; i >= 0; --i) {
    if (x.sizes[i] == 1) continue;
    if (call.batch == 1) {
      call.batch_stride = x.strides[i];
    } else if (x.strides[i] != call.batch * call.batch_stride) {
      return std::nullopt;
    }
    call.batch *= x.sizes[i];
  }
  return Padded{in_bytes(x, call, width), sizes};
}

std::optional<Padded> pad_transform(const TensorView& x, std::int64_t heads) {
  if (!has_unit_stride(x)) return std::nullopt;
  const std::int64_t batch = x.sizes[0], tokens = x.sizes[1], width = x.sizes[2] / heads;
  const kernels::PadHeads call{batch, tokens, heads, 0, 0, x.strides[0], x.strides[1], width};
  return Padded{in_bytes(x, call, width), {batch, heads, tokens, padded_width(width)}};
}

void pad_heads(const char* op, const Padded& padded, void* result, const void* x, const Gpu& on) {
  constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1;
  const kernels::PadHeads& call = padded.call;
  const std::int64_t rows = call.batch * call.tokens * call.heads;
  if (rows > kMostRows) fail(op, "x", "fewer than 2^31 heads", std::to_string(rows));
  if (rows == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, pad_heads)(call, result, x, on.stream));
}

}  // namespace fusedops::ops
