#include "families/call.h"

#include <string>
#include <utility>

#include "families/checks.h"
#include "platform/host.h"

namespace fusedops {
namespace {

Call*& call_of_thread() {
  FUSEDOPS_PER_THREAD Call* call = nullptr;
  return call;
}

}  // namespace

Call::Call(const char* name, Framework& framework, const Tensor* outs, std::size_t results,
           const Tensor* memory)
    : name_(name),
      framework_(framework),
      outs_(outs),
      results_(results),
      memory_(memory),
      before_(std::exchange(call_of_thread(), this)) {}

Call::~Call() { call_of_thread() = before_; }

Call& Call::current() { return *call_of_thread(); }

Torch& Call::torch() const {
  Torch* const found = framework_.torch();
  if (!found) throw Refused(std::string(name_) + ": torch alone has what it needs");
  return *found;
}

Tensor Call::result(const Tensor& like, const TensorView& wanted) {
  if (!outs_) return framework_.allocate(like, wanted);
  if (next_ == results_) {
    throw Error(std::string(name_) + ": makes more results than its schema has");
  }
  const Tensor& out = outs_[next_++];
  check_out(out, wanted);
  return out;
}

Tensor Call::temporary(const Tensor& like, const TensorView& wanted) {
  if (!memory_) return framework_.allocate(like, wanted);
  return torch().over(*memory_, take(wanted), wanted);
}

std::int64_t Call::take(const TensorView& wanted) {
  constexpr std::int64_t alignment = 256;
  const std::int64_t end = taken_ + elements_of(wanted) * element_size(wanted.dtype);
  const std::int64_t held = elements_of(*memory_);
  if (end > held) {
    fail("workspace", "room for " + std::to_string(end) + " bytes of temporaries",
         std::to_string(held));
  }
  return std::exchange(taken_, (end + alignment - 1) / alignment * alignment);
}

}  // namespace fusedops
