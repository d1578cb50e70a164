// The operators X_out, which write the results of X to tensors of the caller. They run X's own
// function: while it runs, the Api gives it the caller's tensors and memory where it would
// allocate. An X_out takes X's arguments, the tensors for the results, and memory or None.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/validate.h"
#include "torch/types.h"

namespace fusedops {

// The call of an X_out that this thread is in, if it is in one.
template <class Tensor>
class Outputs {
 public:
  // `memory`: bytes for temporaries; none: they are allocated.
  Outputs(const char* op, std::vector<Tensor> results, std::optional<Tensor> memory)
      : op_(op),
        results_(std::move(results)),
        memory_(std::move(memory)),
        before_(std::exchange(current(), this)) {}
  Outputs(const Outputs&) = delete;
  ~Outputs() { current() = before_; }

  static Outputs*& current() {
#if defined(FUSEDOPS_MODEL)  // where thread_local is the blocks' shared memory
    static Outputs* call = nullptr;
#else
    static thread_local Outputs* call = nullptr;
#endif
    return call;
  }

  const Tensor* memory() const { return memory_ ? &*memory_ : nullptr; }

  // The tensor for the next result, which must be like `expected`.
  template <class View>
  const Tensor& next(const View& view, const TensorView& expected) {
    if (next_ == results_.size()) {
      throw Error(std::string(op_) + ": makes more results than its schema has");
    }
    const Tensor& out = results_[next_++];
    check_out(op_, view(out), expected);
    return out;
  }

  // Where in the memory, in bytes, the next temporary begins.
  std::int64_t take(const std::vector<std::int64_t>& sizes, DType dtype) {
    constexpr std::int64_t alignment = 256;
    std::int64_t end = taken_ + element_size(dtype);
    for (const std::int64_t size : sizes) end = taken_ + (end - taken_) * size;
    const std::int64_t held = memory_->numel();
    if (end > held) {
      fail(op_, "workspace", "room for " + std::to_string(end) + " bytes of temporaries",
           std::to_string(held));
    }
    return std::exchange(taken_, (end + alignment - 1) / alignment * alignment);
  }

 private:
  const char* const op_;
  const std::vector<Tensor> results_;
  std::size_t next_ = 0;
  const std::optional<Tensor> memory_;
  std::int64_t taken_ = 0;
  Outputs* const before_;
};

}  // namespace fusedops

// Registers X and X_out. Each flavour has
//   FUSEDOPS_BOX(function)           the function in the form in which torch calls it,
//   FUSEDOPS_BOX_OUT(Name, function)  X_out in that form; Name::value() is "X".
#define FUSEDOPS_OPERATOR(m, name, function)                 \
  do {                                                       \
    struct Name {                                            \
      static const char* value() { return name; }            \
    };                                                       \
    (m).impl(name, FUSEDOPS_BOX(function));                  \
    (m).impl(name "_out", FUSEDOPS_BOX_OUT(Name, function)); \
  } while (false)
