// Operators as torch's dispatcher calls them from Python: arguments and results on a stack.
// torch::Library::impl makes that of a function too, with templates that cost the compiler 0.15 s
// an operator; these cost a third of it. It would hold the function against the schema as well: the
// tests do.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fusedops::boxed {

inline const at::Tensor& unbox(const c10::IValue& value, const at::Tensor*) {
  return value.toTensor();
}
inline std::optional<at::Tensor> unbox(const c10::IValue& value, const std::optional<at::Tensor>*) {
  return value.toOptional<at::Tensor>();
}
inline double unbox(const c10::IValue& value, const double*) { return value.toDouble(); }
inline std::int64_t unbox(const c10::IValue& value, const std::int64_t*) { return value.toInt(); }
inline bool unbox(const c10::IValue& value, const bool*) { return value.toBool(); }
inline at::ScalarType unbox(const c10::IValue& value, const at::ScalarType*) {
  return value.toScalarType();
}
inline const std::string& unbox(const c10::IValue& value, const std::string*) {
  return value.toStringRef();
}

inline void push(torch::jit::Stack& stack, at::Tensor result) {
  stack.emplace_back(std::move(result));
}
template <class... Tensors>
void push(torch::jit::Stack& stack, std::tuple<Tensors...> results) {
  std::apply([&](auto&... each) { (push(stack, std::move(each)), ...); }, results);
}

template <auto kFunction>
struct Boxed;

template <class Result, class... Parameters, Result (*kFunction)(Parameters...)>
struct Boxed<kFunction> {
  static void call(const c10::OperatorHandle&, torch::jit::Stack* stack) {
    apply(*stack, std::index_sequence_for<Parameters...>{});
  }

 private:
  template <std::size_t... kIndex>
  static void apply(torch::jit::Stack& stack, std::index_sequence<kIndex...>) {
    const std::size_t first = stack.size() - sizeof...(Parameters);
    const auto run = [&] {
      return kFunction(
          unbox(stack[first + kIndex], static_cast<std::decay_t<Parameters>*>(nullptr))...);
    };
    if constexpr (std::is_void_v<Result>) {
      run();
      stack.resize(first);
    } else {
      Result result = run();
      stack.resize(first);
      push(stack, std::move(result));
    }
  }
};

template <auto kFunction>
c10::BoxedKernel box() {
  return c10::BoxedKernel::makeFromFunction<&Boxed<kFunction>::call>();
}

}  // namespace fusedops::boxed
