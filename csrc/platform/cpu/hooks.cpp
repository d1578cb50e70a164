// What the compiler calls. With -fsanitize=thread it reports each access to memory by a function of
// ThreadSanitizer's runtime, and with -fsanitize=undefined each operation that C++ does not define.
// Both runtimes are replaced by the functions here, which say kernel, block, thread and line.
#include <cstdio>

#include "platform/cpu/state.h"

namespace {

using fusedops::model::machine;
using fusedops::model::touch;

// A place in the sources, as the compiler lays it out.
struct SourceLocation {
  const char* file;
  unsigned line, column;
};

void undefined(const void* data, const char* what, const void* pc) {
  if (machine.current) fusedops::model::fail(pc, what);
  const auto& location = *static_cast<const SourceLocation*>(data);
  std::fprintf(stderr, "%s:%u: %s\n", location.file, location.line, what);
  __builtin_abort();
}

}  // namespace

#define FUSEDOPS_HOOK(name, bytes, writes)                      \
  void __tsan_##name(const void* address) {                     \
    touch(address, bytes, writes, __builtin_return_address(0)); \
  }
#define FUSEDOPS_HOOKS(bytes)              \
  FUSEDOPS_HOOK(read##bytes, bytes, false) \
  FUSEDOPS_HOOK(write##bytes, bytes, true)
// An access of a packed type: no alignment is promised, so none is asked for.
#define FUSEDOPS_HOOKS_UNALIGNED(bytes)                                                        \
  void __tsan_unaligned_read##bytes(const char* address) {                                     \
    for (int i = 0; i < bytes; ++i) touch(address + i, 1, false, __builtin_return_address(0)); \
  }                                                                                            \
  void __tsan_unaligned_write##bytes(const char* address) {                                    \
    for (int i = 0; i < bytes; ++i) touch(address + i, 1, true, __builtin_return_address(0));  \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
FUSEDOPS_HOOKS(1)
FUSEDOPS_HOOKS(2)
FUSEDOPS_HOOKS(4)
FUSEDOPS_HOOKS(8)
FUSEDOPS_HOOKS(16)
FUSEDOPS_HOOKS_UNALIGNED(2)
FUSEDOPS_HOOKS_UNALIGNED(4)
FUSEDOPS_HOOKS_UNALIGNED(8)
FUSEDOPS_HOOKS_UNALIGNED(16)
void __tsan_read_range(const char* address, unsigned long bytes) {
  for (unsigned long i = 0; i < bytes; ++i) {
    touch(address + i, 1, false, __builtin_return_address(0));
  }
}
void __tsan_write_range(const char* address, unsigned long bytes) {
  for (unsigned long i = 0; i < bytes; ++i) {
    touch(address + i, 1, true, __builtin_return_address(0));
  }
}

#define FUSEDOPS_UNDEFINED(name, what)                                                           \
  void __ubsan_handle_##name(void* data) { undefined(data, what, __builtin_return_address(0)); } \
  void __ubsan_handle_##name##_abort(void* data) {                                               \
    undefined(data, what, __builtin_return_address(0));                                          \
  }
FUSEDOPS_UNDEFINED(add_overflow, "adds signed numbers, and the sum does not fit their type")
FUSEDOPS_UNDEFINED(sub_overflow, "subtracts signed numbers, and the result does not fit their type")
FUSEDOPS_UNDEFINED(mul_overflow,
                   "multiplies signed numbers, and the product does not fit their type")
FUSEDOPS_UNDEFINED(negate_overflow, "negates a number, and the result does not fit its type")
FUSEDOPS_UNDEFINED(divrem_overflow, "divides by 0, or the quotient does not fit its type")
FUSEDOPS_UNDEFINED(shift_out_of_bounds,
                   "shifts by more bits than the type has, or a negative number")
FUSEDOPS_UNDEFINED(out_of_bounds, "uses an index past the end of an array")
FUSEDOPS_UNDEFINED(type_mismatch_v1, "uses a null pointer, or one that is not aligned for its type")
FUSEDOPS_UNDEFINED(float_cast_overflow, "converts a number to an integer type that it does not fit")
FUSEDOPS_UNDEFINED(load_invalid_value,
                   "loads a bool or an enumeration with a value that it has not")
FUSEDOPS_UNDEFINED(pointer_overflow, "moves a pointer around the end of memory")
FUSEDOPS_UNDEFINED(builtin_unreachable, "reaches code that is said to be unreachable")
FUSEDOPS_UNDEFINED(missing_return, "ends a function without the value it returns")
FUSEDOPS_UNDEFINED(vla_bound_not_positive, "makes an array of no elements")
FUSEDOPS_UNDEFINED(nonnull_arg, "passes a null pointer where none may be")
FUSEDOPS_UNDEFINED(nonnull_return_v1, "returns a null pointer where none may be")
FUSEDOPS_UNDEFINED(invalid_builtin, "counts the zeros of 0")
}
