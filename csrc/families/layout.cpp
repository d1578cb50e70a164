// add_padding and pad_transform.
#include "kernels/layout.h"

#include <optional>
#include <string>
#include <vector>

#include "families/api.h"

namespace fusedops {
namespace {

// The kernel's call, and the sizes of the result.
struct Padded {
  kernels::PadHeads call;
  std::vector<std::int64_t> sizes;
};

// The width of a padded head; 0 if heads are too wide.
std::int64_t padded_width(std::int64_t width) {
  for (const std::int64_t wide : {32, 64, 128}) {
    if (width <= wide) return wide;
  }
  return 0;
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

// Nothing if x must be made contiguous first. So does the next.
std::optional<Padded> plan_of_padding(const TensorView& x) {
  if (!has_unit_stride(x)) return std::nullopt;
  const std::int64_t width = cols_of(x);
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
  return Padded{in_bytes(x, call, width), sizes_with(x, padded_width(width))};
}

std::optional<Padded> plan_of_transform(const TensorView& x, std::int64_t heads) {
  if (!has_unit_stride(x)) return std::nullopt;
  const std::int64_t batch = x.sizes[0], tokens = x.sizes[1], width = x.sizes[2] / heads;
  const kernels::PadHeads call{batch, tokens, heads, 0, 0, x.strides[0], x.strides[1], width};
  return Padded{in_bytes(x, call, width), {batch, heads, tokens, padded_width(width)}};
}

}  // namespace

struct LayoutOps {
  static Tensor add_padding(const Tensor& x) {
    require(has_rows(x) && padded_width(cols_of(x)) != 0);
    return padded(x, &plan_of_padding);
  }

  static Tensor pad_transform(const Tensor& x, std::int64_t heads) {
    require(is_floating(x) && x.view().dim == 3 && heads >= 1 && cols_of(x) % heads == 0 &&
            padded_width(cols_of(x) / heads) != 0);
    return padded(x, [heads](const TensorView& view) { return plan_of_transform(view, heads); });
  }

 private:
  template <class Plan>
  static Tensor padded(const Tensor& x, const Plan& plan) {
    check_on_gpu("x", x);
    auto padding = plan(x);
    const Tensor in = padding ? x : contiguous(x);
    if (!padding) padding = plan(in);
    const Tensor result = empty(x, padding->sizes, x.view().dtype);
    constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 1;
    const kernels::PadHeads& call = padding->call;
    const std::int64_t rows = call.batch * call.tokens * call.heads;
    if (rows > most_rows) fail("x", "fewer than 2^31 heads", std::to_string(rows));
    if (rows == 0) return result;
    const Gpu on = gpu_of(x);
    check_launch(on, FUSEDOPS_KERNEL(on, pad_heads)(call, result.data(), in.data(), on.stream));
    return result;
  }
};

FUSEDOPS_FAMILY(layout, m) {
  m.op<&LayoutOps::add_padding>("add_padding");
  m.op<&LayoutOps::pad_transform>("pad_transform");
}

}  // namespace fusedops
