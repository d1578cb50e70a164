// Registers families of operators through libtorch's C++ API.
//
// In a library that is built just in time a family is registered when the library is loaded. In an
// extension module (TORCH_EXTENSION_NAME is set) it is only added to families(): typed.cpp
// registers that list once it is known that the running torch is the one the module was built for.
// All families of a module are compiled as one unit, because torch's headers take seconds to read.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch/outputs.h"

// Constructors that torch's headers call and that libstdc++.so has only since GCC 9
// (GLIBCXX_3.4.26). A library brings its own, so that it loads wherever torch does.
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
template std::basic_stringstream<char>::basic_stringstream();

// Operators in the form in which torch's dispatcher calls them from Python: arguments and results
// on a stack. torch::Library::impl can wrap a function too, but its templates cost the compiler
// 0.15 s an operator; these cost a third of that. They do not compare the function with its schema:
// the tests do.
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

// X_out, by X's function. torch::jit::last and pop of torch 2.6 would need libstdc++ of GCC 5.
inline void call_into(const char* op, std::size_t results,
                      void (*call)(const c10::OperatorHandle&, torch::jit::Stack*),
                      const c10::OperatorHandle& handle, torch::jit::Stack& stack) {
  auto memory = stack.back().toOptional<at::Tensor>();
  stack.pop_back();
  std::vector<at::Tensor> outs;
  for (auto out = stack.end() - results; out != stack.end(); ++out) outs.push_back(out->toTensor());
  stack.resize(stack.size() - results);
  const Outputs<at::Tensor> entered(op, std::move(outs), std::move(memory));
  call(handle, &stack);
  stack.resize(stack.size() - results);
}

template <class Name, auto kFunction>
void call_out(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  call_into(Name::value(), results_of(kFunction), &Boxed<kFunction>::call, handle, *stack);
}

template <class Name, auto kFunction>
c10::BoxedKernel box_out() {
  return c10::BoxedKernel::makeFromFunction<&call_out<Name, kFunction>>();
}

}  // namespace fusedops::boxed

namespace fusedops {

struct Registered {
  std::string name;
  c10::BoxedKernel kernel;
};

// Registers kernels with torch's dispatcher, and remembers them in `registered` if it is given.
class Registrar {
 public:
  explicit Registrar(torch::Library& library, std::vector<Registered>* registered = nullptr)
      : library_(library), registered_(registered) {}

  void impl(const char* name, c10::BoxedKernel kernel) {
    library_.impl(name, torch::CppFunction::makeFromBoxedKernel(kernel));
    if (registered_) registered_->push_back({name, std::move(kernel)});
  }

 private:
  torch::Library& library_;
  std::vector<Registered>* registered_;
};

using RegisterFamily = void(Registrar&);

// The families of an extension module, in the order in which their files are compiled.
inline std::vector<RegisterFamily*>& families() {
  static std::vector<RegisterFamily*> all;
  return all;
}

struct AddFamily {
  explicit AddFamily(RegisterFamily* family) { families().push_back(family); }
};

}  // namespace fusedops

#define FUSEDOPS_BOX(function) ::fusedops::boxed::box<(function)>()
#define FUSEDOPS_BOX_OUT(Name, function) ::fusedops::boxed::box_out<Name, (function)>()

#if defined(TORCH_EXTENSION_NAME)
#define FUSEDOPS_FAMILY(family, m)                                     \
  static void register_##family(::fusedops::Registrar& m);             \
  static const ::fusedops::AddFamily add_##family(&register_##family); \
  static void register_##family(::fusedops::Registrar& m)
#else
#define FUSEDOPS_FAMILY(family, m)                         \
  static void register_##family(::fusedops::Registrar& m); \
  TORCH_LIBRARY_IMPL(fusedops, CUDA, library) {            \
    ::fusedops::Registrar registrar(library);              \
    register_##family(registrar);                          \
  }                                                        \
  static void register_##family(::fusedops::Registrar& m)
#endif
