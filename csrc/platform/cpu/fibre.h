// A thread of the GPU as a fibre of the CPU: its own stack, and a switch that saves the registers
// which a call preserves.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fusedops::model {

constexpr std::size_t kStackBytes = 64 << 10;

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  char* stack = nullptr;  // lowest address; nullptr for the host's
};

// Stacks for fibres 0, 1 and so on, with a page below each that may not be touched.
char* stack_of(std::size_t fibre);
// Whether the address lies in one of them.
bool in_stacks(const void* address);

// Lets the context begin with `entry` on its stack. `entry` never returns.
void begin_at(Context& context, void (*entry)());
void switch_contexts(Context& from, Context& to);

}  // namespace fusedops::model
