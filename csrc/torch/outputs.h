// The operators X_out, which write the results of X to tensors of the caller. They are X's own
// functions: while one runs, the Api gives it the caller's tensors and memory where it would
// allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/validate.h"

namespace fusedops {

// The call of an X_out that this thread is in, if it is in one.
template <class Tensor>
class Outputs {
 public:
  // `memory`: bytes for temporaries; null: they are allocated.
  Outputs(const char* op, const Tensor* const* results, int count, const Tensor* memory)
      : op_(op), results_(results), count_(count), memory_(memory), before_(current()) {
    current() = this;
  }
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

  const Tensor* memory() const { return memory_; }

  // The tensor for the next result, which must be like `expected`.
  template <class View>
  const Tensor& next(const View& view, const TensorView& expected) {
    if (next_ == count_) throw Error(std::string(op_) + ": makes more results than its schema has");
    const Tensor& out = *results_[next_++];
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
  const Tensor* const* const results_;
  const int count_;
  int next_ = 0;
  const Tensor* const memory_;
  std::int64_t taken_ = 0;
  Outputs* const before_;
};

namespace outputs_detail {

template <class Result>
struct Results {
  using Tensor = Result;
  using Indices = std::index_sequence<0>;
};

template <class First, class... More>
struct Results<std::tuple<First, More...>> {
  using Tensor = First;
  using Indices = std::index_sequence_for<First, More...>;
};

template <class Name, auto kFunction, class Tensor, class Indices, class... Parameters>
struct Call;

template <class Name, auto kFunction, class Tensor, std::size_t... kIndex, class... Parameters>
struct Call<Name, kFunction, Tensor, std::index_sequence<kIndex...>, Parameters...> {
  template <std::size_t>
  using Out = const Tensor&;

  static void call(Parameters... args, Out<kIndex>... outs, const std::optional<Tensor>& memory) {
    const Tensor* const results[] = {&outs...};
    Outputs<Tensor> entered(Name::value(), results, sizeof...(kIndex), memory ? &*memory : nullptr);
    kFunction(args...);
  }
};

}  // namespace outputs_detail

// X_out for the function of X; Name::value() is "X".
template <class Name, auto kFunction>
struct WithOuts;

template <class Name, class Result, class... Parameters, Result (*kFunction)(Parameters...)>
struct WithOuts<Name, kFunction>
    : outputs_detail::Call<Name, kFunction, typename outputs_detail::Results<Result>::Tensor,
                           typename outputs_detail::Results<Result>::Indices, Parameters...> {};

}  // namespace fusedops

// Registers X and X_out.
#define FUSEDOPS_OPERATOR(m, name, function)                                              \
  do {                                                                                    \
    struct Name {                                                                         \
      static const char* value() { return name; }                                         \
    };                                                                                    \
    (m).impl(name, FUSEDOPS_BOX(function));                                               \
    (m).impl(name "_out", FUSEDOPS_BOX((&::fusedops::WithOuts<Name, (function)>::call))); \
  } while (false)
