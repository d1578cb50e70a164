// The rotary position embedding, its in-place form and its gradient.
#include "kernels/rotary.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "families/api.h"

namespace fusedops {
namespace {

struct Options {
  std::int64_t rotary_dim;
  std::int64_t offset;
  const std::string& style;
  double theta;
};

bool are_heads(const TensorView& q, const TensorView& k) {
  return is_floating(q) && q.dim == 4 && is_like(k, q) && k.dim == 4 && k.sizes[0] == q.sizes[0] &&
         k.sizes[1] == q.sizes[1] && k.sizes[3] == q.sizes[3];
}

kernels::Positions checked(const OptionalTensor& positions, const TensorView& q,
                           std::int64_t offset) {
  if (!positions) return {offset, 1, nullptr, false, 0, 0};
  const TensorView& view = *positions;
  const bool wide = view.dtype == DType::int64;
  require((wide || view.dtype == DType::int32) && same_device(view, q));
  const std::int64_t batch = q.sizes[0], tokens = q.sizes[1];
  const std::int64_t* const sizes = view.sizes;
  if (view.dim == 1 && sizes[0] == batch) return {offset, 1, view.data, wide, view.strides[0], 0};
  require(view.dim == 2 && (sizes[0] == batch || sizes[0] == 1) && sizes[1] == tokens);
  return {offset, 0, view.data, wide, sizes[0] == 1 ? 0 : view.strides[0], view.strides[1]};
}

// The kernel's call, without the places of q and k.
kernels::Rotary checked(const TensorView& q, const TensorView& k, const OptionalTensor& positions,
                        const Options& options) {
  kernels::Rotary call{};
  call.interleaved = is_interleaved(options.style);
  require(are_heads(q, k) && options.rotary_dim >= 2 && options.rotary_dim <= q.sizes[3] &&
          options.rotary_dim % 2 == 0 && is_theta(options.theta));
  call.positions = checked(positions, q, options.offset);
  call.dtype = q.dtype;
  call.batch = q.sizes[0];
  call.tokens = q.sizes[1];
  call.head_dim = q.sizes[3];
  call.rotary_dim = options.rotary_dim;
  call.theta = options.theta;
  return call;
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
  if (elements_of(heads) == 0 || elements_of(other) == 0) return false;
  if (address(other) < address(heads)) return false;
  std::int64_t rest = (address(other) - address(heads)) / element_size(heads.dtype);
  const Steps steps(heads);
  for (std::size_t i = steps.count; i-- > 0;) {
    const auto [stride, size] = steps.all[i];
    rest -= std::min(rest / stride, size - 1) * stride;
  }
  return rest == 0;
}

// Whether it can be written in place.
bool is_writable(const TensorView& heads) { return has_unit_stride(heads) && !overlap(heads); }

kernels::RotarySide side(const TensorView& from, const TensorView& to) {
  const auto strides = [](const TensorView& heads) {
    return kernels::HeadStrides{heads.strides[0], heads.strides[1], heads.strides[2]};
  };
  return {from.data, to.data, strides(from), strides(to), from.sizes[2]};
}

void launch(const kernels::Rotary& call, const Gpu& on) {
  constexpr std::int64_t most_tokens = (std::int64_t{1} << 31) - 1;
  const std::int64_t tokens = call.batch * call.tokens;
  if (tokens > most_tokens) fail("q", "fewer than 2^31 tokens", std::to_string(tokens));
  if (tokens == 0 || call.q.heads + call.k.heads == 0) return;
  check_launch(on, FUSEDOPS_KERNEL(on, rotary)(call, on.stream));
}

}  // namespace

struct RotaryOps {
  using Pair = std::tuple<Tensor, Tensor>;

  static Pair apply_rotary_pos_emb(const Tensor& q, const Tensor& k,
                                   const OptionalTensor& positions, std::int64_t rotary_dim,
                                   std::int64_t offset, const std::string& style, double theta) {
    return rotated(q, k, positions, {rotary_dim, offset, style, theta}, false);
  }

  static Pair apply_rotary_pos_emb_backward(const Tensor& grad_q, const Tensor& grad_k,
                                            const OptionalTensor& positions,
                                            std::int64_t rotary_dim, std::int64_t offset,
                                            const std::string& style, double theta) {
    return rotated(grad_q, grad_k, positions, {rotary_dim, offset, style, theta}, true);
  }

  static void apply_rotary_pos_emb_(const Tensor& q, const Tensor& k,
                                    const OptionalTensor& positions, std::int64_t rotary_dim,
                                    std::int64_t offset, const std::string& style, double theta) {
    kernels::Rotary call = checked(q, k, positions, {rotary_dim, offset, style, theta});
    require(is_writable(q) && is_writable(k) && !has_first_of(q, k) && !has_first_of(k, q));
    check_on_gpu("q", q);
    call.in_place = true;
    call.q = side(q, q);
    call.k = side(k, k);
    launch(call, gpu_of(q));
  }

 private:
  static Pair rotated(const Tensor& q, const Tensor& k, const OptionalTensor& positions,
                      const Options& options, bool inverse) {
    kernels::Rotary call = checked(q, k, positions, options);
    check_on_gpu("q", q);
    const Tensor from_q = with_unit_stride(q), from_k = with_unit_stride(k);
    const Tensor to_q = like(q), to_k = like(k);
    call.inverse = inverse;
    call.q = side(from_q, to_q);
    call.k = side(from_k, to_k);
    launch(call, gpu_of(q));
    return {to_q, to_k};
  }

  static Tensor with_unit_stride(const Tensor& heads) {
    return has_unit_stride(heads) ? heads : contiguous(heads);
  }

  static Tensor like(const Tensor& heads) {
    const TensorView& view = heads.view();
    return empty(heads, {view.sizes, view.sizes + view.dim}, view.dtype);
  }
};

FUSEDOPS_FAMILY(rotary, m) {
  m.op<&RotaryOps::apply_rotary_pos_emb>("apply_rotary_pos_emb");
  m.op_without_out<&RotaryOps::apply_rotary_pos_emb_>("apply_rotary_pos_emb_");
  m.op_without_out<&RotaryOps::apply_rotary_pos_emb_backward>("apply_rotary_pos_emb_backward");
}

}  // namespace fusedops
