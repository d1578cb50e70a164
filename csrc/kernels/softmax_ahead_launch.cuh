// softmax of rows that are fetched ahead: how a call becomes a launch.
#pragma once

#include "kernels/row_block.h"
#include "kernels/softmax_ahead.cuh"
#include "kernels/softmax_job.cuh"
#include "platform/device.h"

namespace fusedops::kernels::softmax_detail {

constexpr int kAlwaysAllowed = 47 << 10;  // bytes; the kernels have up to 1 KiB beside it

// How a call's rows are fetched ahead.
template <class T>
struct Ahead {
  Kernel<T> kernel;
  RowBlock block;
  int shared;  // bytes
};

template <class T, Form kForm>
Ahead<T> ahead_as(const Softmax& call) {
  constexpr int kVectors = Rows<T, kForm>::kVectors, kThreads = 128;
  const RowBlock block =
      row_block(ceil_div(call.keys, std::int64_t{kLanes<T> * kVectors}), kThreads);
  const std::int64_t places = block.threads * block.rows * kVectors * kPlaces<T, kForm>;
  return {&softmax_ahead_kernel<T, kForm>, block, static_cast<int>(places * kVectorBytes)};
}

template <class T>
Ahead<T> ahead_of(const Softmax& call, Form form) {
  if (form == Form::boolean) return ahead_as<T, Form::boolean>(call);
  if constexpr (sizeof(T) < sizeof(float)) {
    if (form == Form::float32) return ahead_as<T, Form::float32>(call);
  }
  return ahead_as<T, Form::like_scores>(call);
}

// Rows that the same threads take, one after another: where a multiprocessor has only one block or
// two, so that it has something to wait for while they exchange maxima; and of masks wider than the
// scores, which are then read once for these rows. No more than leave enough for all processors.
template <class T>
unsigned run_of(const Softmax& call, Form form, std::int64_t threads, int processors) {
  constexpr std::int64_t kThreads = 1024;  // of a multiprocessor
  const bool wide = form == Form::float32 && shares_mask(call);
  unsigned run = wide ? 8 : threads > kThreads / 2 ? kLanes<T> : threads > kThreads / 4 ? 2 : 1;
  while (run > 1 && call.rows() / run * threads < processors * kThreads * 9 / 10) run /= 2;
  return run;
}

template <class T>
gpu::Status launch_ahead(const Softmax& call, const Ahead<T>& ahead, Form form, unsigned run,
                         void* y, const void* scores, gpu::Stream stream) {
  Job job = job_of(call, shares_mask(call) && call.mask.query != 0, run);
  if (form == Form::boolean) {
    job.factor = static_cast<float>(kLog2E * call.scale);
    job.slopes = static_cast<float>(1 / call.scale);
  }
  if (ahead.shared > kAlwaysAllowed) {
    const gpu::Status status = gpu::allow_shared(ahead.kernel, ahead.shared);
    if (status != gpu::kSuccess) return status;
  }
  const std::int64_t rows = call.rows(), of_block = ahead.block.rows * run;
  return overlap::launch(ahead.kernel,
                         overlap::Blocks{dim3(static_cast<unsigned>(ceil_div(rows, of_block))),
                                         ahead.block.dim(), 1, static_cast<unsigned>(ahead.shared)},
                         stream, static_cast<T*>(y), static_cast<const T*>(scores),
                         static_cast<unsigned>(rows), job);
}

}  // namespace fusedops::kernels::softmax_detail
