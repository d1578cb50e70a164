// What the entry points by type need to know of an operator, read from its schema.
#pragma once

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "torch/aten/typed.h"

namespace fusedops::typed {

inline std::optional<Kind> kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Kind::tensor;
    case c10::TypeKind::FloatType:
      return Kind::number;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return Kind::integer;
    case c10::TypeKind::BoolType:
      return Kind::flag;
    case c10::TypeKind::StringType:
      return Kind::text;
    default:
      return std::nullopt;
  }
}

// Names are the schema's own, which must outlive them. Nothing for a schema with other kinds or too
// many arguments.
inline std::optional<std::vector<Argument>> arguments_of(const c10::FunctionSchema& schema) {
  std::vector<Argument> arguments;
  for (const c10::Argument& from : schema.arguments()) {
    const auto optional = from.real_type()->cast<c10::OptionalType>();
    const auto kind = kind_of(optional ? *optional->getElementType() : *from.real_type());
    if (!kind) return std::nullopt;
    arguments.push_back({from.name().c_str(), *kind, optional != nullptr, from.kwarg_only(),
                         from.default_value().has_value(),
                         from.alias_info() != nullptr && from.alias_info()->isWrite()});
  }
  if (arguments.size() > kMostArguments) return std::nullopt;
  return arguments;
}

// Whether results are tensors, and no more than an Output holds.
inline bool gives_tensors(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return results.size() <= kMostResults &&
         std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.type()->kind() == c10::TypeKind::TensorType;
         });
}

// As Python writes it.
inline std::string signature_of(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  const char* between = "(";
  bool keyword_only = false;
  for (const c10::Argument& argument : schema.arguments()) {
    text << between;
    if (argument.kwarg_only() && !keyword_only) text << "*, ";
    keyword_only = argument.kwarg_only();
    text << argument.name();
    if (argument.default_value()) {
      argument.default_value()->repr(text << "=", [](auto&, const auto&) { return false; });
    }
    between = ", ";
  }
  text << ")";
  return text.str();
}

}  // namespace fusedops::typed
