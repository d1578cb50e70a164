#include "families/gemm_products.h"

#include "families/bias_act.h"
#include "families/dequantize.h"
#include "families/gated.h"
#include "kernels/gemm_skinny.h"

namespace fusedops {
namespace {

bool may_be_skinny(const Product& call) {
  return call.rows <= kernels::kSkinnyRows && element_size(call.dtype) == 2;
}

Tensor as_matrix(const Tensor& tensor, std::int64_t rows, std::int64_t cols) {
  return tensor.view().dim == 2 ? tensor
                                : Call::current().framework().matrix(tensor, matrix_of(rows, cols));
}

// Runs the product on the skinny GEMM kernel if that supports it and is faster; returns whether it
// did. `a` is contiguous.
bool try_skinny(const Product& call, const Tensor& out, const Tensor& a, const Factor& factor,
                const OptionalTensor& bias) {
  const OptionalTensor b = contiguous_if(bias);
  OptionalTensor scales;
  if (factor.scale) scales = contiguous(*factor.scale);
  const kernels::GemmSkinnyTensors tensors{out.data(), a.data(), factor.tensor.data(), data_of(b),
                                           data_of(scales)};
  const std::int64_t* const strides = factor.tensor.view().strides;
  const bool by_rows = strides[1] == 1;
  if (strides[0] != 1 && !by_rows) return false;
  const kernels::GemmSkinny gemm{
      call.dtype, call.follow.activation,   call.follow.gated, call.rows, call.inner, call.cols(),
      !by_rows,   strides[by_rows ? 0 : 1], call.groups};
  const Gpu on = gpu_of(a);
  if (!FUSEDOPS_KERNEL(on, gemm_skinny_takes)(gemm, tensors)) return false;
  check_launch(on, FUSEDOPS_KERNEL(on, gemm_skinny)(gemm, tensors, on.stream));
  return true;
}

Tensor dequantized(const Product& call, const Factor& factor) {
  const Tensor weight = on_16_bytes(factor.tensor);
  const Tensor scale = contiguous(*factor.scale);
  const std::int64_t elements = call.inner * call.width;
  const Tensor out = temporary(weight, {call.inner, call.width}, call.dtype);
  launch_dequantize({call.dtype, false, elements, elements / call.groups}, out.data(),
                    weight.data(), scale.data(), gpu_of(weight));
  return out;
}

Tensor weight_of(const Product& call, const Factor& factor) {
  return factor.scale ? dequantized(call, factor) : factor.tensor;
}

// The bias of a kernel that wants one.
Tensor bias_of(const Product& call, const Tensor& a, const OptionalTensor& bias) {
  if (bias) return contiguous(*bias);
  const Tensor made = temporary(a, {call.width}, call.dtype);
  const Gpu on = gpu_of(a);
  const std::int64_t bytes = call.width * element_size(call.dtype);
  check_launch(on, FUSEDOPS_KERNEL(on, fill_with_zeros)(made.data(), bytes, on.stream));
  return made;
}

// out = a weight + bias, by torch.
void by_torch(const Product& call, const Tensor& out, const Tensor& a, const Tensor& weight,
              const OptionalTensor& bias) {
  const Tensor rows = as_matrix(a, call.rows, call.inner),
               into = as_matrix(out, call.rows, call.width);
  if (bias) {
    torch().addmm(into, *bias, rows, weight);
  } else {
    torch().mm(into, rows, weight);
  }
}

void by_blas(const Product& call, const Tensor& out, const Rows& a, const Tensor& weight,
             const OptionalTensor& bias) {
  const Follow& follow = call.follow;
  if (!follow.gated && try_blas(call, out, a, weight, bias)) return;
  if (!follow.gated && follow.activation == Activation::identity) {
    by_torch(call, out, a.tensor, weight, bias);
    return;
  }
  const Tensor v = temporary(a.tensor, {call.rows, call.width}, call.dtype);
  Product plain = call;
  plain.follow = {};
  if (!try_blas(plain, v, a, weight)) by_torch(call, v, a.tensor, weight, std::nullopt);
  const Gpu on = gpu_of(a.tensor);
  if (follow.gated) {
    const OptionalTensor b = contiguous_if(bias);
    launch_gated({call.dtype, follow.activation, call.rows, call.cols()}, out.data(), v.data(),
                 data_of(b), on);
  } else {
    const Tensor b = bias_of(call, a.tensor, bias);
    launch_bias_act({call.dtype, follow.activation, call.rows, call.width}, out.data(), v.data(),
                    b.data(), on);
  }
}

std::int64_t groups_of(const Factor& weight) {
  return weight.scale ? weight.scale->view().sizes[0] : 0;
}

}  // namespace

Follow following(const std::string& activation) {
  if (activation == "gelu") return {Activation::gelu_tanh};
  if (activation == "gelu_erf") return {Activation::gelu_erf};
  if (activation == "relu") return {Activation::relu};
  if (activation == "geglu") return {Activation::gelu_tanh, true};
  if (activation == "geglu_erf") return {Activation::gelu_erf, true};
  if (activation == "swiglu") return {Activation::silu, true};
  require(activation == "reglu");
  return {Activation::relu, true};
}

bool has_pitch(const TensorView& matrix) {
  const std::int64_t* const by = matrix.strides;
  return (by[1] == 1 && by[0] >= matrix.sizes[1]) || (by[0] == 1 && by[1] >= matrix.sizes[0]);
}

bool is_weight(const Factor& weight, const TensorView& x, std::int64_t inner) {
  const TensorView& view = weight.tensor;
  return view.dtype == (weight.scale ? DType::int8 : x.dtype) && same_device(view, x) &&
         view.dim == 2 && view.sizes[0] == inner &&
         (!weight.scale || is_scale(*weight.scale, view));
}

Product checked_product(const TensorView& x, const Factor& weight, Follow follow) {
  require(has_rows(x) && !(weight.scale && x.dtype == DType::float64));
  const std::int64_t inner = cols_of(x);
  require(is_weight(weight, x, inner));
  const std::int64_t width = cols_of(weight.tensor);
  require(!follow.gated || width % 2 == 0);
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i + 1 < x.dim; ++i) rows *= x.sizes[i];
  return {x.dtype, rows, inner, width, groups_of(weight), follow};
}

Product checked_next(const Product& before, const TensorView& x, const Factor& weight) {
  require(is_weight(weight, x, before.cols()));
  return {before.dtype, before.rows, before.cols(), cols_of(weight.tensor), groups_of(weight), {}};
}

Rows as_rows(const Product& call, const Tensor& x) {
  const TensorView& view = x.view();
  if (view.dim == 2 && !may_be_skinny(call) && has_pitch(view)) {
    const bool by_columns = view.strides[1] != 1;
    return {x, by_columns, view.strides[by_columns ? 1 : 0]};
  }
  return {contiguous(x), false, call.inner};
}

void add_product(const Product& call, const Tensor& out, const Tensor& a, const Tensor& weight,
                 const Tensor& residual) {
  const Tensor more = contiguous(residual);
  if (try_blas(call, out, as_rows(call, a), weight, std::nullopt, more)) return;
  by_torch(call, out, a, weight, as_matrix(more, call.rows, call.width));
}

void run_product(const Product& call, const Tensor& out, const Rows& a, const Factor& weight,
                 const OptionalTensor& bias) {
  if (may_be_skinny(call) && !a.by_columns && try_skinny(call, out, a.tensor, weight, bias)) return;
  by_blas(call, out, a, weight_of(call, weight), bias);
}

void run_both(const Product& first, const Product& second, const Tensor& out, const Rows& a,
              const Factor& up, const OptionalTensor& bias, const Factor& down) {
  const Tensor hidden = temporary(a.tensor, {first.rows, first.cols()}, first.dtype);
  run_product(first, hidden, a, up, bias);
  run_product(second, out, {hidden, false, second.inner}, down);
}

}  // namespace fusedops
