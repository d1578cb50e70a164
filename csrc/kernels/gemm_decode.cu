// y = f(RMS(x) weight), y = v1 f(v2) of the halves of v = RMS(x) weight, or y = residual + RMS(x)
// weight: x is [rows, inner] with few rows, weight [inner, cols] with contiguous columns. Here the
// launch is chosen; the kernel is in gemm_decode.cuh.
#include <algorithm>

#include "kernels/gemm_decode.cuh"
#include "kernels/gemm_decode.h"
#include "kernels/tiling.h"
#include "platform/device.h"

namespace fusedops::kernels {
namespace gemm_decode_detail {

// Two blocks of a multiprocessor: one ends while another begins. With one, too few bytes are on
// their way (H200).
constexpr int kResident = 2;
constexpr int kLeastSlots = 2, kMostSlots = 4;  // of a ring; five were slower (H200)

DecodeShape shape_of(const GemmDecode& call) {
  const int width = call.gated ? kColumns / 2 : kColumns;
  return {call.cols,
          call.cols,
          ceil_div(call.cols, width),
          static_cast<unsigned>(call.pitch * 2),
          static_cast<int>(call.rows),
          static_cast<int>(call.inner),
          static_cast<int>(ceil_div(call.inner, kUnit)),
          call.gated,
          call.constant,
          call.activation,
          static_cast<float>(1.0 / static_cast<double>(call.inner)),
          static_cast<float>(call.eps)};
}

// How a call lies on the GPU.
struct RingLayout {
  int slots = 0;            // of a warp's ring; 0 if the call has no room
  std::int64_t blocks = 0;  // of the grid
  std::int64_t shared = 0;  // bytes of a block
};

// A ring has no more slots than its warp has units: then the next kernel's blocks find room beside
// this one's while it waits. Long rows of x leave a ring fewer.
gpu::Status layout_of(const GemmDecode& call, RingLayout& layout) {
  constexpr std::int64_t kStatic = 5 * 1024, kSlot = kWarps * kUnitBytes;
  int room = 0, processors = 0;
  gpu::Status status = gpu::shared_memory(kResident, room);
  if (status == gpu::kSuccess) status = gpu::multiprocessors(processors);
  if (status != gpu::kSuccess) return status;
  const DecodeShape shape = shape_of(call);
  const std::int64_t x = call.rows * (shape.units * kColumnBytes + 16), gamma = call.inner * 2;
  const std::int64_t slots = (room - kStatic - x - gamma) / kSlot;
  const std::int64_t blocks = std::min<std::int64_t>(shape.tiles, processors * kResident);
  const std::int64_t units = ceil_div(shape.tiles, blocks) * ceil_div(shape.units, kWarps);
  const std::int64_t wanted = std::clamp<std::int64_t>(units, kLeastSlots, kMostSlots);
  // With fewer, the library's product is as fast.
  if (slots < std::min<std::int64_t>(wanted, 3)) return gpu::kSuccess;
  layout.slots = static_cast<int>(std::min(slots, wanted));
  layout.blocks = blocks;
  layout.shared = layout.slots * kSlot + x + gamma;
  return gpu::kSuccess;
}

template <class T, int kSlots>
gpu::Status launch_rings(const GemmDecode& call, const GemmDecodeTensors& tensors,
                         const RingLayout& layout, gpu::Stream stream) {
  const auto kernel = &decode_kernel<T, kSlots>;
  const gpu::Status status = gpu::allow_shared(kernel, static_cast<int>(layout.shared));
  if (status != gpu::kSuccess) return status;
  overlap::Blocks blocks{dim3(static_cast<unsigned>(layout.blocks)), dim3(kBlock), 0,
                         static_cast<unsigned>(layout.shared)};
  if (call.constant) {
    const std::int64_t columns = call.gated ? 2 * call.cols : call.cols;
    blocks.constants[0] = {tensors.weight, ((columns - 1) * call.pitch + call.inner) * 2};
    blocks.constants[1] = {tensors.gamma, tensors.gamma ? call.inner * 2 : 0};
  }
  return overlap::launch(kernel, blocks, stream, shape_of(call), static_cast<T*>(tensors.y),
                         static_cast<const T*>(tensors.x), tensors.weight,
                         static_cast<const T*>(tensors.gamma),
                         static_cast<const T*>(tensors.residual));
}

template <class T>
gpu::Status launch_decode(const GemmDecode& call, const GemmDecodeTensors& tensors,
                          gpu::Stream stream) {
  RingLayout layout;
  const gpu::Status status = layout_of(call, layout);
  if (status != gpu::kSuccess) return status;
  switch (layout.slots) {
    case 2:
      return launch_rings<T, 2>(call, tensors, layout, stream);
    case 3:
      return launch_rings<T, 3>(call, tensors, layout, stream);
    case kMostSlots:
      return launch_rings<T, kMostSlots>(call, tensors, layout, stream);
  }
  return gpu::kInvalidValue;
}

// Whether it is faster than several kernels, as measured: with more rows the library's product is
// (H200).
bool pays(const GemmDecode& call) {
  constexpr std::int64_t kFew = 4;
  return !gpu::kMeasured || (call.rows <= kFew && gpu::major_capability() >= 9);
}

}  // namespace gemm_decode_detail

bool gemm_decode_takes(const GemmDecode& call, const GemmDecodeTensors& tensors) {
  using namespace gemm_decode_detail;
  constexpr std::int64_t kMost = 1 << 28;
  RingLayout layout;
  return pays(call) && (call.dtype == DType::float16 || call.dtype == DType::bfloat16) &&
         call.rows > 0 && call.rows <= kRows && call.cols > 0 && call.inner > 0 &&
         call.inner < kMost && call.inner % 8 == 0 && call.pitch % 8 == 0 && call.pitch < kMost &&
         aligned(tensors.x) && aligned(tensors.weight) && gpu::has_tensor_cores() &&
         layout_of(call, layout) == gpu::kSuccess && layout.slots > 0;
}

gpu::Status gemm_decode(const GemmDecode& call, const GemmDecodeTensors& tensors,
                        gpu::Stream stream) {
  using namespace gemm_decode_detail;
  return call.dtype == DType::float16 ? launch_decode<half>(call, tensors, stream)
                                      : launch_decode<bfloat16>(call, tensors, stream);
}

TORCHWHEEL_EXPORT(gemm_decode_takes)
TORCHWHEEL_EXPORT(gemm_decode)

}  // namespace fusedops::kernels
