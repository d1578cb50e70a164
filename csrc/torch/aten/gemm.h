// The kernels of products with weights for libtorch's C++ API.
#pragma once

#include "torch/aten/blas.h"
#include "torch/aten/boxed.h"
#include "torch/aten/registrar.h"
#include "torch/frontend/gemm.h"

namespace fusedops {

inline void register_gemm(Registrar m) {
  using boxed::box;
  using Native = Gemm<AtenBlas>;
  m.impl("vector_matmul", box<&Native::vector_matmul>());
  m.impl("linear_layer", box<&Native::linear_layer>());
  m.impl("fused_gemm_gelu", box<&Native::fused_gemm_gelu>());
  m.impl("einsum_sec_sm_ecm", box<&Native::einsum_sec_sm_ecm>());
  m.impl("qkv_gemm", box<&Native::qkv_gemm>());
  m.impl("rms_qkv_gemm", box<&Native::rms_qkv_gemm>());
  m.impl("mlp_gemm", box<&Native::mlp_gemm>());
  m.impl("rms_mlp_gemm", box<&Native::rms_mlp_gemm>());
  m.impl("vector_matmul_int8", box<&Native::vector_matmul_int8>());
  m.impl("linear_layer_int8", box<&Native::linear_layer_int8>());
  m.impl("fused_gemm_gelu_int8", box<&Native::fused_gemm_gelu_int8>());
  m.impl("qkv_gemm_int8", box<&Native::qkv_gemm_int8>());
  m.impl("rms_qkv_gemm_int8", box<&Native::rms_qkv_gemm_int8>());
  m.impl("mlp_gemm_int8", box<&Native::mlp_gemm_int8>());
  m.impl("rms_mlp_gemm_int8", box<&Native::rms_mlp_gemm_int8>());
}

}  // namespace fusedops
