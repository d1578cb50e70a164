// A call of an operator from torch's dispatcher, the same for both of torch's ABIs.
#pragma once

#include <array>
#include <cstddef>

#include "families/call.h"
#include "families/registrar.h"

namespace fusedops {

// Calls X, or X_out if `into` is set. X_out takes X's arguments, the tensors for the results, and
// memory or None.
//
// Stack is the arguments in the ABI's form. Its functions tensor, number, integer, flag, text and
// dtype give the argument of an index, tensor_if a tensor that may be None. Stack::Guard makes a
// GPU current while it lives.
template <class Stack>
void call_operator(const Operator& op, bool into, Torch& torch, Stack& stack, Tensor* results) {
  std::array<OptionalTensor, kMostArguments> tensors;
  std::array<Value, kMostArguments> values;
  int gpu = -1;  // of the first tensor on one
  for (std::size_t i = 0; i < op.arguments; ++i) {
    switch (op.parameters[i].kind) {
      case Kind::tensor:
        tensors[i] = op.parameters[i].optional ? stack.tensor_if(i) : stack.tensor(i);
        values[i].tensor = tensors[i] ? &*tensors[i] : nullptr;
        if (gpu < 0 && tensors[i]) gpu = tensors[i]->view().device.index;
        break;
      case Kind::number:
        values[i].number = stack.number(i);
        break;
      case Kind::integer:
        values[i].integer = stack.integer(i);
        break;
      case Kind::flag:
        values[i].flag = stack.flag(i);
        break;
      case Kind::text:
        values[i].text = stack.text(i);
        break;
      case Kind::dtype:
        values[i].dtype = stack.dtype(i);
        break;
    }
  }
  std::array<Tensor, kMostResults> outs;
  OptionalTensor memory;
  if (into) {
    for (std::size_t i = 0; i < op.results; ++i) outs[i] = stack.tensor(op.arguments + i);
    memory = stack.tensor_if(op.arguments + op.results);
  }
  const typename Stack::Guard guard(gpu);
  const Call call(op.name, torch, into ? outs.data() : nullptr, op.results,
                  memory ? &*memory : nullptr);
  op.call(values.data(), results);
}

}  // namespace fusedops
