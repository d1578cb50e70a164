#include "families/checks.h"

#include "families/call.h"

namespace fusedops {

void refuse() {
  const std::string name = Call::current().name();
  throw Refused(name + ": the arguments are not as fusedops." + name + " takes them");
}

void fail(const char* argument, const std::string& expected, const std::string& found) {
  throw Error(std::string(Call::current().name()) + ": " + argument + ": expected " + expected +
              ", found " + found);
}

void check_on_gpu(const char* name, const TensorView& a) {
  if (a.device.index < 0) fail(name, "a tensor on a GPU", a.device.type);
}

void check_aligned(const char* name, const TensorView& a) {
  if (!aligned(a.data)) fail(name, "memory that starts on 16 bytes", "memory off it");
}

void check_out(const TensorView& out, const TensorView& expected) {
  require(is_alike(out, expected) && is_contiguous(out) && aligned(out.data));
}

void check_launch(const char* name, const Gpu& on, gpu::Status status) {
  if (status == gpu::kSuccess) return;
  throw Error(std::string(name) +
              ": the GPU refused the kernel: " + FUSEDOPS_KERNEL(on, describe)(status));
}

void check_launch(const Gpu& on, gpu::Status status) {
  if (status != gpu::kSuccess) check_launch(Call::current().name(), on, status);
}

}  // namespace fusedops
