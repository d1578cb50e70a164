// Registers the operators of families: a list of functions of values, which each framework's side
// makes its own functions of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "families/tensor.h"

namespace fusedops {

// The kinds of arguments, as a schema writes them.
enum class Kind { tensor, number, integer, flag, text, dtype };

struct Parameter {
  Kind kind;
  bool optional;  // takes None
};

// The value of an argument, in the member for its kind.
struct Value {
  const Tensor* tensor;  // null for None
  union {
    double number;
    std::int64_t integer;
    bool flag;
    const char* text;  // UTF-8
    DType dtype;
  };
};

constexpr std::size_t kMostArguments = 24, kMostResults = 4;

// An operator as a function of values. `results` has a place for each tensor that it returns.
struct Operator {
  const char* name;
  void (*call)(const Value* values, Tensor* results);
  const Parameter* parameters;
  std::size_t arguments;
  std::size_t results;
  bool has_out;  // X_out is an operator too (families/call.h)
};

// The operators of the families in this library.
inline std::vector<Operator>& operators() {
  static std::vector<Operator> all;
  return all;
}

// One of an operator's function.
template <class T>
inline constexpr Parameter kParameterOf{Kind::tensor, false};
template <>
inline constexpr Parameter kParameterOf<OptionalTensor>{Kind::tensor, true};
template <>
inline constexpr Parameter kParameterOf<double>{Kind::number, false};
template <>
inline constexpr Parameter kParameterOf<std::int64_t>{Kind::integer, false};
template <>
inline constexpr Parameter kParameterOf<bool>{Kind::flag, false};
template <>
inline constexpr Parameter kParameterOf<std::string>{Kind::text, false};
template <>
inline constexpr Parameter kParameterOf<DType>{Kind::dtype, false};

inline const Tensor& unpack(const Value& value, const Tensor*) { return *value.tensor; }
inline OptionalTensor unpack(const Value& value, const OptionalTensor*) {
  return value.tensor ? OptionalTensor(*value.tensor) : std::nullopt;
}
inline double unpack(const Value& value, const double*) { return value.number; }
inline std::int64_t unpack(const Value& value, const std::int64_t*) { return value.integer; }
inline bool unpack(const Value& value, const bool*) { return value.flag; }
inline std::string unpack(const Value& value, const std::string*) { return value.text; }
inline DType unpack(const Value& value, const DType*) { return value.dtype; }

inline void store(Tensor result, Tensor* results) { *results = std::move(result); }
template <class... Tensors>
void store(std::tuple<Tensors...> made, Tensor* results) {
  std::apply([&](auto&... each) { ((*results++ = std::move(each)), ...); }, made);
}

template <auto kFunction>
struct Unpacked;

template <class Result, class... Parameters, Result (*kFunction)(Parameters...)>
struct Unpacked<kFunction> {
  static constexpr std::array<Parameter, sizeof...(Parameters)> kParameters{
      kParameterOf<std::decay_t<Parameters>>...};
  static_assert(sizeof...(Parameters) <= kMostArguments);

  static void call(const Value* values, Tensor* results) {
    apply(values, results, std::index_sequence_for<Parameters...>{});
  }

 private:
  template <std::size_t... kIndex>
  static void apply(const Value* values, [[maybe_unused]] Tensor* results,
                    std::index_sequence<kIndex...>) {
    const auto run = [&] {
      return kFunction(unpack(values[kIndex], static_cast<std::decay_t<Parameters>*>(nullptr))...);
    };
    if constexpr (std::is_void_v<Result>) {
      run();
    } else {
      store(run(), results);
    }
  }
};

// How many tensors an operator's function returns.
template <class Result, class... Parameters>
constexpr std::size_t results_of(Result (*)(Parameters...)) {
  return std::is_void_v<Result> ? 0 : 1;
}
template <class... Results, class... Parameters>
constexpr std::size_t results_of(std::tuple<Results...> (*)(Parameters...)) {
  static_assert(sizeof...(Results) <= kMostResults);
  return sizeof...(Results);
}

class Registrar {
 public:
  // X and X_out.
  template <auto kFunction>
  void op(const char* name) {
    add<kFunction>(name, true);
  }

  // An operator that writes to its arguments, or computes a gradient.
  template <auto kFunction>
  void op_without_out(const char* name) {
    add<kFunction>(name, false);
  }

 private:
  template <auto kFunction>
  void add(const char* name, bool has_out) {
    const auto& parameters = Unpacked<kFunction>::kParameters;
    operators().push_back({name, &Unpacked<kFunction>::call, parameters.data(), parameters.size(),
                           results_of(kFunction), has_out});
  }
};

struct AddFamily {
  explicit AddFamily(void (*family)(Registrar&)) {
    Registrar registrar;
    family(registrar);
  }
};

}  // namespace fusedops

// The families are in the list before a static object without a priority is made: those that
// register the list with torch.
#define FUSEDOPS_FAMILY(family, m)                                                      \
  static void register_##family(::fusedops::Registrar& m);                              \
  __attribute__((init_priority(1000))) static const ::fusedops::AddFamily add_##family( \
      &register_##family);                                                              \
  static void register_##family(::fusedops::Registrar& m)
