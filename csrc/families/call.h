// The call of an operator that a thread is in: its framework, and the tensors and the memory that
// the caller gave for results and temporaries. X and X_out, which writes X's results to tensors of
// the caller, run the same function; only their calls differ.
#pragma once

#include <cstddef>
#include <cstdint>

#include "families/framework.h"

namespace fusedops {

class Call {
 public:
  // `name` is for error messages. `outs`: tensors for the results; null: they are
  // allocated. `memory`: bytes for temporaries; null: they are allocated.
  Call(const char* name, Framework& framework, const Tensor* outs = nullptr,
       std::size_t results = 0, const Tensor* memory = nullptr);
  Call(const Call&) = delete;
  ~Call();

  static Call& current();

  const char* name() const { return name_; }
  Framework& framework() const { return framework_; }
  // The framework as torch; refuses the call if it is another.
  Torch& torch() const;
  // A tensor for the next result, with the sizes and the dtype of `wanted`.
  Tensor result(const Tensor& like, const TensorView& wanted);
  Tensor temporary(const Tensor& like, const TensorView& wanted);

 private:
  // Where in the memory, in bytes, the next temporary begins.
  std::int64_t take(const TensorView& wanted);

  const char* const name_;
  Framework& framework_;
  const Tensor* const outs_;
  const std::size_t results_;
  const Tensor* const memory_;
  Call* const before_;
  std::size_t next_ = 0;
  std::int64_t taken_ = 0;
};

}  // namespace fusedops
