// The rotary position embedding, its in-place form and its gradient.
#include "ops/rotary.h"

#include <string>
#include <tuple>
#include <vector>

#include "families/api.h"

namespace fusedops {

struct Rotary {
  using Pair = std::tuple<Tensor, Tensor>;

  static Pair apply_rotary_pos_emb(const Tensor& q, const Tensor& k,
                                   const OptionalTensor& positions, std::int64_t rotary_dim,
                                   std::int64_t offset, const std::string& style, double theta) {
    return rotated({"apply_rotary_pos_emb", "q", "k"}, q, k, positions,
                   {rotary_dim, offset, style, theta}, false);
  }

  static Pair apply_rotary_pos_emb_backward(const Tensor& grad_q, const Tensor& grad_k,
                                            const OptionalTensor& positions,
                                            std::int64_t rotary_dim, std::int64_t offset,
                                            const std::string& style, double theta) {
    return rotated({"apply_rotary_pos_emb_backward", "grad_q", "grad_k"}, grad_q, grad_k, positions,
                   {rotary_dim, offset, style, theta}, true);
  }

  static void apply_rotary_pos_emb_(const Tensor& q, const Tensor& k,
                                    const OptionalTensor& positions, std::int64_t rotary_dim,
                                    std::int64_t offset, const std::string& style, double theta) {
    const Names names{"apply_rotary_pos_emb_", "q", "k"};
    const TensorView from_q = q.view(), from_k = k.view();
    kernels::Rotary call =
        checked(names, from_q, from_k, positions, {rotary_dim, offset, style, theta});
    ops::check_writable(names.op, {names.q, from_q});
    ops::check_writable(names.op, {names.k, from_k});
    ops::check_apart(names.op, {names.q, from_q}, {names.k, from_k});
    check_on_gpu(names.op, {names.q, from_q});
    call.in_place = true;
    call.q = ops::rotary_side(from_q, from_q);
    call.k = ops::rotary_side(from_k, from_k);
    ops::rotary(names.op, call, gpu_of(from_q));
  }

 private:
  struct Names {
    const char* op;
    const char* q;
    const char* k;
  };

  static kernels::Rotary checked(const Names& names, const TensorView& q, const TensorView& k,
                                 const OptionalTensor& positions,
                                 const ops::RotaryOptions& options) {
    return ops::check_rotary(names.op, {names.q, q}, {names.k, k}, view_if(positions), options);
  }

  static Pair rotated(const Names& names, const Tensor& q, const Tensor& k,
                      const OptionalTensor& positions, const ops::RotaryOptions& options,
                      bool inverse) {
    const TensorView& view = q.view();
    kernels::Rotary call = checked(names, view, k.view(), positions, options);
    check_on_gpu(names.op, {names.q, view});
    const Tensor from_q = with_unit_stride(q), from_k = with_unit_stride(k);
    const Tensor to_q = like(q), to_k = like(k);
    call.inverse = inverse;
    call.q = ops::rotary_side(from_q.view(), to_q.view());
    call.k = ops::rotary_side(from_k.view(), to_k.view());
    ops::rotary(names.op, call, gpu_of(view));
    return {to_q, to_k};
  }

  static Tensor with_unit_stride(const Tensor& heads) {
    return fusedops::has_unit_stride(heads.view()) ? heads : contiguous(heads);
  }

  static Tensor like(const Tensor& heads) {
    const TensorView& view = heads.view();
    return empty(heads, {view.sizes, view.sizes + view.dim}, view.dtype);
  }
};

FUSEDOPS_FAMILY(rotary, m) {
  m.op<&Rotary::apply_rotary_pos_emb>("apply_rotary_pos_emb");
  m.op_without_out<&Rotary::apply_rotary_pos_emb_>("apply_rotary_pos_emb_");
  m.op_without_out<&Rotary::apply_rotary_pos_emb_backward>("apply_rotary_pos_emb_backward");
}

}  // namespace fusedops
