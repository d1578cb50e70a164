#include "families/gemm_products.h"

#include <atomic>

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
  return tensor.view().dim == 2 ? tensor : torch().matrix(tensor, matrix_of(rows, cols));
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

Tensor zeros(const Tensor& like, std::int64_t count, DType dtype) {
  const Tensor made = temporary(like, {count}, dtype);
  torch().zero(made);
  return made;
}

Tensor bias_of(const Product& call, const Tensor& a, const OptionalTensor& bias) {
  return bias ? contiguous(*bias) : zeros(a, call.width, call.dtype);
}

void by_blas(const Product& call, const Tensor& out, const Tensor& a, const Tensor& weight,
             const OptionalTensor& bias) {
  const Follow& follow = call.follow;
  if (!follow.gated && follow.activation == Activation::identity) {
    multiply(call, out, a, weight, bias);
    return;
  }
  const Tensor v = temporary(a, {call.rows, call.width}, call.dtype);
  multiply(call, v, a, weight);
  const Gpu on = gpu_of(a);
  if (follow.gated) {
    const OptionalTensor b = contiguous_if(bias);
    launch_gated({call.dtype, follow.activation, call.rows, call.cols()}, out.data(), v.data(),
                 data_of(b), on);
  } else {
    const Tensor b = bias_of(call, a, bias);
    launch_bias_act({call.dtype, follow.activation, call.rows, call.width}, out.data(), v.data(),
                    b.data(), on);
  }
}

bool product_of_nan_is_nan(const Gpu& on, const Tensor& like, DType dtype) {
  constexpr std::int64_t size = 32;
  const Tensor nan = temporary(like, {size, size}, dtype);
  const std::int64_t bytes = size * size * element_size(dtype);
  gpu::Status status = FUSEDOPS_KERNEL(on, fill_with_nan)(nan.data(), bytes, on.stream);
  if (status != gpu::kSuccess) return false;
  const Tensor y = torch().addmm_activation(zeros(like, size, dtype), nan, nan, false);
  std::uint32_t bits = 0;  // of one float, or of two 16-bit numbers
  status = FUSEDOPS_KERNEL(on, read)(&bits, y.data(), sizeof bits, on.stream);
  const std::uint32_t infinity = dtype == DType::float16 ? 0x7c000000u : 0x7f800000u;
  return status == gpu::kSuccess && (bits & 0x7fff0000u) > infinity;
}

// Whether the BLAS library's ReLU keeps NaN; cuBLAS 12.4's returns 0. It is tried once for each GPU
// and dtype, but not while a graph is captured: then the answer is no.
bool relu_keeps_nan(const Product& call, const Tensor& a) {
  enum Answer { unknown, yes, no };
  static std::atomic<Answer> answers[kMostGpus][4];
  const Gpu on = gpu_of(a);
  if (on.index < 0 || on.index >= kMostGpus) return false;
  std::atomic<Answer>& answer = answers[on.index][static_cast<int>(call.dtype)];
  if (answer == unknown) {
    bool capturing = true;
    const gpu::Status asked = FUSEDOPS_KERNEL(on, is_capturing)(on.stream, capturing);
    if (asked != gpu::kSuccess || capturing) return false;
    answer = product_of_nan_is_nan(on, a, call.dtype) ? yes : no;
  }
  return answer == yes;
}

// Whether the BLAS library applies the activation itself, as accurately as our kernels: its GELU
// has too few digits for float32. torch passes the activation on only if no dimension is 1, and
// drops it if there is nothing to sum. It allocates the result.
bool has_epilogue(const Product& call, const Tensor& a) {
  const bool known =
      call.follow.activation == Activation::relu ||
      (call.follow.activation == Activation::gelu_tanh && element_size(call.dtype) == 2);
  return known && !Call::current().has_memory() && !call.follow.gated &&
         call.dtype != DType::float64 && call.rows > 1 && call.inner > 1 && call.width > 1 &&
         torch().has_addmm_activation() &&
         (call.follow.activation != Activation::relu || relu_keeps_nan(call, a));
}

// The product that an MLP has between its weights, in a temporary.
Tensor hidden(const Product& call, const Tensor& a, const Factor& factor,
              const OptionalTensor& bias) {
  OptionalTensor out;
  const auto make = [&] { out = temporary(a, {call.rows, call.cols()}, call.dtype); };
  if (may_be_skinny(call)) {
    make();
    if (try_skinny(call, *out, a, factor, bias)) return *out;
  }
  const Tensor weight = weight_of(call, factor);
  if (has_epilogue(call, a)) {
    return torch().addmm_activation(bias_of(call, a, bias), a, weight,
                                    call.follow.activation == Activation::gelu_tanh);
  }
  if (!out) make();
  by_blas(call, *out, a, weight, bias);
  return *out;
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

Tensor as_rows(const Product& call, const Tensor& x) {
  if (x.view().dim == 2 && !may_be_skinny(call)) return x;
  return as_matrix(contiguous(x), call.rows, call.inner);
}

void multiply(const Product& call, const Tensor& out, const Tensor& a, const Tensor& weight,
              const OptionalTensor& bias) {
  const Tensor rows = as_matrix(out, call.rows, call.width);
  if (bias) {
    torch().addmm(rows, *bias, a, weight);
  } else {
    torch().mm(rows, a, weight);
  }
}

void run_product(const Product& call, const Tensor& out, const Tensor& a, const Factor& weight,
                 const OptionalTensor& bias) {
  if (may_be_skinny(call) && try_skinny(call, out, a, weight, bias)) return;
  by_blas(call, out, a, weight_of(call, weight), bias);
}

void run_both(const Product& first, const Product& second, const Tensor& out, const Tensor& a,
              const Factor& up, const OptionalTensor& bias, const Factor& down) {
  run_product(second, out, hidden(first, a, up, bias), down);
}

}  // namespace fusedops
