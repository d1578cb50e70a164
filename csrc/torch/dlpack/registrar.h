// Registers families of operators in a list, from which module.cpp makes entry points.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch/dlpack/api.h"
#include "torch/entry_points.h"
#include "torch/types.h"

namespace fusedops::dlpack {

// The value of an argument, in the member for its kind.
struct Value {
  const Array* array;  // null for None
  double number;
  std::int64_t integer;
  bool flag;
  const char* text;  // UTF-8
};

inline const Array& unpack(const Value& value, const Array*) { return *value.array; }
inline std::optional<Array> unpack(const Value& value, const std::optional<Array>*) {
  return value.array ? std::optional<Array>(*value.array) : std::nullopt;
}
inline double unpack(const Value& value, const double*) { return value.number; }
inline std::int64_t unpack(const Value& value, const std::int64_t*) { return value.integer; }
inline bool unpack(const Value& value, const bool*) { return value.flag; }
inline std::string unpack(const Value& value, const std::string*) { return value.text; }

template <class T>
constexpr typed::Kind kKindOf = typed::Kind::tensor;
template <>
constexpr typed::Kind kKindOf<double> = typed::Kind::number;
template <>
constexpr typed::Kind kKindOf<std::int64_t> = typed::Kind::integer;
template <>
constexpr typed::Kind kKindOf<bool> = typed::Kind::flag;
template <>
constexpr typed::Kind kKindOf<std::string> = typed::Kind::text;

inline PyObject* pack(const Array& result) { return Object(result.object()).release(); }
template <class... Arrays>
PyObject* pack(const std::tuple<Arrays...>& results) {
  return std::apply(
      [](const auto&... each) {
        return checked(PyTuple_Pack(sizeof...(each), each.object().get()...));
      },
      results);
}

template <auto kFunction>
struct Boxed;

template <class Result, class... Parameters, Result (*kFunction)(Parameters...)>
struct Boxed<kFunction> {
  static constexpr std::array<typed::Kind, sizeof...(Parameters)> kKinds{
      kKindOf<std::decay_t<Parameters>>...};

  static PyObject* call(const Value* values) {
    return apply(values, std::index_sequence_for<Parameters...>{});
  }

 private:
  template <std::size_t... kIndex>
  static PyObject* apply(const Value* values, std::index_sequence<kIndex...>) {
    const auto run = [&] {
      return kFunction(unpack(values[kIndex], static_cast<std::decay_t<Parameters>*>(nullptr))...);
    };
    if constexpr (std::is_void_v<Result>) {
      run();
      return Object::borrowed(Py_None).release();
    } else {
      return pack(run());
    }
  }
};

// An operator's front end, as a function of values.
struct Kernel {
  const char* name;
  PyObject* (*call)(const Value* values);  // a new reference
  const typed::Kind* kinds;
  std::size_t arguments;
  int results;
};

template <auto kFunction>
struct Box {
  static constexpr Kernel kernel(const char* name) {
    using Function = Boxed<kFunction>;
    return {name, &Function::call, Function::kKinds.data(), Function::kKinds.size(),
            static_cast<int>(results_of(kFunction))};
  }
};

// All operators' front ends.
inline std::vector<Kernel>& kernels() {
  static std::vector<Kernel> all;
  return all;
}

struct Registrar {
  template <class Box>
  void impl(const char* name, Box) {
    kernels().push_back(Box::kernel(name));
  }
};

struct AddFamily {
  explicit AddFamily(void (*family)(Registrar&)) {
    Registrar registrar;
    family(registrar);
  }
};

}  // namespace fusedops::dlpack

#define FUSEDOPS_BOX(function) \
  ::fusedops::dlpack::Box<(function)> {}
// X_out is X, called with out=.
#define FUSEDOPS_OPERATOR(m, name, function) (m).impl(name, FUSEDOPS_BOX(function))
#define FUSEDOPS_FAMILY(family, m)                                             \
  static void register_##family(::fusedops::dlpack::Registrar& m);             \
  static const ::fusedops::dlpack::AddFamily add_##family(&register_##family); \
  static void register_##family(::fusedops::dlpack::Registrar& m)
