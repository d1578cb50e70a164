// What the modules of entry points by type (bias_gelu_fp16 …) have in common: torch/aten, for one
// torch and one Python, and torch/dlpack, for any. It includes no header of torch or Python.
#pragma once

#include "families/registrar.h"

namespace fusedops::typed {

// What Python calls a value of that kind, for an error message.
inline const char* described(Kind kind) {
  switch (kind) {
    case Kind::tensor:
      return "a torch.Tensor";
    case Kind::number:
      return "a float";
    case Kind::integer:
      return "an int";
    case Kind::flag:
      return "a bool";
    case Kind::text:
      return "a str";
    case Kind::dtype:
      return "a torch.dtype";
  }
  return "";
}

// An element type: the suffix of an entry point's name, and torch's name.
struct Type {
  const char* suffix;  // "fp16"
  DType dtype;
  const char* name;  // "float16"
};

constexpr Type kTypes[] = {{"fp32", DType::float32, "float32"},
                           {"fp16", DType::float16, "float16"},
                           {"bf16", DType::bfloat16, "bfloat16"},
                           {"fp64", DType::float64, "float64"}};

}  // namespace fusedops::typed
