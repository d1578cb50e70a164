// Registers products with weights for the CUDA key (HIP's too) through the stable ABI. Their
// schemas are defined in Python, in fusedops/schemas.py.
#include "torch/frontend/gemm.h"

#include <torch/csrc/stable/library.h>

#include "torch/stable/blas.h"

using Native = fusedops::Gemm<fusedops::StableBlas>;

STABLE_TORCH_LIBRARY_IMPL(fusedops, CUDA, m) {
  m.impl("vector_matmul", TORCH_BOX(&Native::vector_matmul));
  m.impl("linear_layer", TORCH_BOX(&Native::linear_layer));
  m.impl("fused_gemm_gelu", TORCH_BOX(&Native::fused_gemm_gelu));
  m.impl("einsum_sec_sm_ecm", TORCH_BOX(&Native::einsum_sec_sm_ecm));
  m.impl("qkv_gemm", TORCH_BOX(&Native::qkv_gemm));
  m.impl("rms_qkv_gemm", TORCH_BOX(&Native::rms_qkv_gemm));
  m.impl("mlp_gemm", TORCH_BOX(&Native::mlp_gemm));
  m.impl("rms_mlp_gemm", TORCH_BOX(&Native::rms_mlp_gemm));
  m.impl("vector_matmul_int8", TORCH_BOX(&Native::vector_matmul_int8));
  m.impl("linear_layer_int8", TORCH_BOX(&Native::linear_layer_int8));
  m.impl("fused_gemm_gelu_int8", TORCH_BOX(&Native::fused_gemm_gelu_int8));
  m.impl("qkv_gemm_int8", TORCH_BOX(&Native::qkv_gemm_int8));
  m.impl("rms_qkv_gemm_int8", TORCH_BOX(&Native::rms_qkv_gemm_int8));
  m.impl("mlp_gemm_int8", TORCH_BOX(&Native::mlp_gemm_int8));
  m.impl("rms_mlp_gemm_int8", TORCH_BOX(&Native::rms_mlp_gemm_int8));
}
