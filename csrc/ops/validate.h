// Checks of arguments, the same and in the same order as fusedops/checks.py.
#pragma once

#include "ops/tensor_view.h"
#include "platform/runtime.h"

namespace fusedops {

// A tensor argument and the name its schema gives it.
struct Argument {
  const char* name;
  const TensorView& tensor;
};

void check_floating(const char* op, const Argument& a);
// Floating, and with a last dimension: its rows.
void check_rows(const char* op, const Argument& a);
void check_on_gpu(const char* op, const Argument& a);
void check_same_dtype(const char* op, const Argument& a, const Argument& like);
void check_same_device(const char* op, const Argument& a, const Argument& like);
// Of one dtype and device.
void check_like(const char* op, const Argument& a, const Argument& like);
// And of one shape.
void check_alike(const char* op, const Argument& a, const Argument& like);
// `a` must be one row of `like`, which has a dimension.
void check_row(const char* op, const Argument& a, const Argument& like);
void check_row_like(const char* op, const Argument& a, const Argument& like);
void check_launch(const char* op, gpu::Status status);

}  // namespace fusedops
