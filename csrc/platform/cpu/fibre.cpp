#include "platform/cpu/fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace fusedops::model {
namespace {

constexpr std::size_t kGuard = 4096, kMostFibres = 16 * 1024;

char* all_stacks() {
  static char* const begin = [] {
    void* const room = mmap(nullptr, kMostFibres * (kStackBytes + kGuard), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) std::abort();
    return static_cast<char*>(room);
  }();
  return begin;
}

}  // namespace

char* stack_of(std::size_t fibre) {
  static std::size_t made = 0;
  if (fibre >= kMostFibres) std::abort();
  char* const begin = all_stacks();
  for (; made <= fibre; ++made) {
    char* const stack = begin + made * (kStackBytes + kGuard) + kGuard;
    if (mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  return begin + fibre * (kStackBytes + kGuard) + kGuard;
}

bool in_stacks(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at - reinterpret_cast<std::uintptr_t>(all_stacks()) < kMostFibres * (kStackBytes + kGuard);
}

#if defined(__x86_64__)

// What a call preserves is pushed on the old stack and popped from the new one.
extern "C" void fusedops_model_switch(void** from, void* to);
asm(R"(
.text
.hidden fusedops_model_switch
.globl fusedops_model_switch
.type fusedops_model_switch, @function
fusedops_model_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fusedops_model_switch, . - fusedops_model_switch
)");

void begin_at(Context& context, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(context.stack + kStackBytes);
  *--top = nullptr;  // the stack is aligned as at a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

void switch_contexts(Context& from, Context& to) {
  fusedops_model_switch(&from.stack_pointer, to.stack_pointer);
}

#else

void begin_at(Context& context, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack = {};
  context.context.uc_stack.ss_sp = context.stack;
  context.context.uc_stack.ss_size = kStackBytes;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}

void switch_contexts(Context& from, Context& to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace fusedops::model
