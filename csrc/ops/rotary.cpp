#include "ops/rotary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/validate.h"

namespace fusedops::ops {
namespace {

void check_heads(const char* op, const Argument& q, const Argument& k) {
  check_floating(op, q);
  if (q.tensor.dim != 4) fail(op, q.name, "shape [B, S, H, D]", shape_of(q.tensor));
  check_like(op, k, q);
  const std::int64_t* const like = q.tensor.sizes;
  const std::int64_t* const sizes = k.tensor.sizes;
  if (k.tensor.dim != 4 || sizes[0] != like[0] || sizes[1] != like[1] || sizes[3] != like[3]) {
    fail(op, k.name,
         "shape [" + std::to_string(like[0]) + ", " + std::to_string(like[1]) + ", heads, " +
             std::to_string(like[3]) + "] (that of " + q.name + ", any heads)",
         shape_of(k.tensor));
  }
}

void check_options(const char* op, const Argument& q, const RotaryOptions& options) {
  const std::int64_t head_dim = q.tensor.sizes[3];
  if (options.rotary_dim < 2 || options.rotary_dim > head_dim || options.rotary_dim % 2 != 0) {
    fail(op, "rotary_dim",
         "an even number from 2 to " + std::to_string(head_dim) + " (the last dimension of " +
             q.name + ")",
         std::to_string(options.rotary_dim));
  }
  check_theta(op, options.theta);
}

kernels::Positions check_positions(const char* op, const Argument& q,
                                   const std::optional<TensorView>& positions,
                                   std::int64_t offset) {
  if (!positions) return {offset, 1, nullptr, false, 0, 0};
  const bool wide = has_dtype(*positions, "int64");
  if (!wide && !has_dtype(*positions, "int32")) {
    fail(op, "positions", "dtype int32 or int64", positions->dtype_name);
  }
  check_same_device(op, {"positions", *positions}, q);
  const std::int64_t batch = q.tensor.sizes[0], tokens = q.tensor.sizes[1];
  const std::int64_t* const sizes = positions->sizes;
  const std::int64_t* const strides = positions->strides;
  if (positions->dim == 1 && sizes[0] == batch) {
    return {offset, 1, positions->data, wide, strides[0], 0};
  }
  if (positions->dim == 2 && (sizes[0] == batch || sizes[0] == 1) && sizes[1] == tokens) {
    return {offset, 0, positions->data, wide, sizes[0] == 1 ? 0 : strides[0], strides[1]};
  }
  const std::string b = std::to_string(batch), s = std::to_string(tokens);
  fail(op, "positions", "shape [" + b + "], [" + b + ", " + s + "] or [1, " + s + "]",
       shape_of(*positions));
}

// Stride and size of the dimensions that have more than one element, the least stride first.
struct Steps {
  std::array<std::pair<std::int64_t, std::int64_t>, 4> all;
  std::size_t count = 0;

  explicit Steps(const TensorView& heads) {
    for (std::int64_t i = 0; i < heads.dim; ++i) {
      if (heads.sizes[i] > 1) insert({heads.strides[i], heads.sizes[i]});
    }
  }

  // Not std::sort: GCC 12 warns of its bounds for so small an array.
  void insert(const std::pair<std::int64_t, std::int64_t>& step) {
    std::size_t at = count++;
    for (; at > 0 && step < all[at - 1]; --at) all[at] = all[at - 1];
    all[at] = step;
  }
};

// Whether two elements may share memory: true if a dimension's stride is less than the reach of
// those inside it.
bool overlap(const TensorView& heads) {
  if (elements_of(heads) == 0) return false;
  const Steps steps(heads);
  std::int64_t reach = 1;
  for (std::size_t i = 0; i < steps.count; ++i) {
    const auto [stride, size] = steps.all[i];
    if (stride < reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

// Whether the first element of `other` is one of `heads`, no two of which share memory.
bool has_first_of(const TensorView& heads, const TensorView& other) {
  const auto address = [](const TensorView& of) { return static_cast<const char*>(of.data); };
  if (address(other) < address(heads)) return false;
  std::int64_t rest = (address(other) - address(heads)) / element_size(heads.dtype);
  const Steps steps(heads);
  for (std::size_t i = steps.count; i-- > 0;) {
    const auto [stride, size] = steps.all[i];
    rest -= std::min(rest / stride, size - 1) * stride;
  }
  return rest == 0;
}

}  // namespace

kernels::Rotary check_rotary(const char* op, const Argument& q, const Argument& k,
                             const std::optional<TensorView>& positions,
                             const RotaryOptions& options) {
  kernels::Rotary call{};
  call.interleaved = is_interleaved(op, "style", options.style);
  check_heads(op, q, k);
  check_options(op, q, options);
  call.positions = check_positions(op, q, positions, options.offset);
  call.dtype = q.tensor.dtype;
  call.batch = q.tensor.sizes[0];
  call.tokens = q.tensor.sizes[1];
  call.head_dim = q.tensor.sizes[3];
  call.rotary_dim = options.rotary_dim;
  call.theta = options.theta;
  return call;
}

void check_writable(const char* op, const Argument& heads) {
  const std::string found = "strides " + strides_of(heads.tensor);
  if (!has_unit_stride(heads.tensor)) {
    fail(op, heads.name, "neighbouring elements along the last dimension", found);
  }
  if (overlap(heads.tensor)) fail(op, heads.name, "elements that share no memory", found);
}

void check_apart(const char* op, const Argument& q, const Argument& k) {
  if (elements_of(q.tensor) == 0 || elements_of(k.tensor) == 0) return;
  if (!has_first_of(q.tensor, k.tensor) && !has_first_of(k.tensor, q.tensor)) return;
  fail(op, k.name, "memory of its own", std::string("memory that it shares with ") + q.name);
}

kernels::RotarySide rotary_side(const TensorView& from, const TensorView& to) {
  const auto strides = [](const TensorView& heads) {
    return kernels::HeadStrides{heads.strides[0], heads.strides[1], heads.strides[2]};
  };
  return {from.data, to.data, strides(from), strides(to), from.sizes[2]};
}

void rotary(const char* op, const kernels::Rotary& call, const Gpu& on) {
  constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;
  const std::int64_t tokens = call.batch * call.tokens;
  if (tokens > kMostTokens) {
    fail(op, "q", "fewer than 2^31 tokens", std::to_string(tokens));
  }
  if (tokens == 0 || call.q.heads + call.k.heads == 0) return;
  check_launch(op, on, FUSEDOPS_KERNEL(on, rotary)(call, on.stream));
}

}  // namespace fusedops::ops
