#include "kernels/types.h"
#include "platform/status.h"

namespace fusedops::kernels {

const char* describe(gpu::Status status) { return gpu::describe(status); }

FUSEDOPS_EXPORT(describe)

}  // namespace fusedops::kernels
