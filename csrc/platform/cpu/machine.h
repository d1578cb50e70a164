// What device code calls on the CPU model of a GPU (docs/emulation.md). The functions are defined
// in files that the compiler does not instrument.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/cpu/types.h"

namespace fusedops::model {

// What the host side asks a GPU's runtime for.
struct GpuModel {
  const char* name;
  int wavefront;        // threads that exchange values
  int major;            // of an NVIDIA GPU's compute capability; 0 for AMD's
  int multiprocessors;  // of the largest such GPU
  int shared_of_sm;     // bytes of shared memory of a multiprocessor
  int shared_of_block;  // the most that a block may be given
};
const GpuModel& gpu();

// Places. They do not change while a thread runs, so the compiler may keep them.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) dim3 block_dim();
__attribute__((const)) dim3 grid_dim();

// Where the threads of a block meet.
void block_barrier();

// Where the threads of a warp meet. The last one calls `act` with the arguments of all, nullptr for
// threads that have ended.
using Act = void (*)(void* const* arguments, int lanes);
void meet(Act act, void* arguments);
// The word of the thread `from` of the warp.
unsigned shuffle(unsigned word, int from);
// The same for the thread whose lane differs in the bits of `mask`, and for the previous one of
// `width` threads; the first keeps its own.
unsigned shuffle_xor(unsigned word, int mask);
unsigned shuffle_up(unsigned word, int width);
void warp_barrier();

// Shared memory as 32-bit addresses, and back.
unsigned shared_address(const void* data);
void* shared_pointer(unsigned address);
// The block's dynamic shared memory.
void* dynamic_shared();

// Asynchronous copies to 16 bytes of shared memory, of so many and zeros: they arrive at the wait,
// and not before.
void copy_start(unsigned to, const void* from, unsigned bytes);
void copy_commit();
void copy_wait(int pending);

// Small matrices (platform/tensor_core.h). `elements` turns two 16-bit elements into floats.
using Elements = void (*)(unsigned word, float (&out)[2]);
void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Elements elements);
void load_matrices(unsigned (&words)[4], unsigned row, bool transposed);
unsigned transpose(unsigned word);

// Clusters.
unsigned cluster_size();
unsigned cluster_rank();
void cluster_arrive();
void cluster_wait();
float cluster_read(const float* mine, unsigned block);
// Values that the blocks of a cluster send each other (platform/cluster.h).
void mail_open(const void* box, unsigned values);
void mail_send(float value, float* mine, const void* box, unsigned block);
void mail_reopen(const void* box, unsigned values);
void mail_receive(const void* box, unsigned round);

// Adds 1 and returns the value before; orders what was written before after what is read then.
std::int32_t count_up(std::int32_t* counter);

// What a kernel reads and writes before this is wrong, if the launch lets it begin early.
void wait_for_previous();
// A prefetch, which must lie on 16 bytes and inside of memory.
void prefetch(const void* address, unsigned bytes);

[[noreturn]] void trap();

// A launch. Returns 0, or a status that describe() has a sentence for.
struct Grid {
  dim3 blocks, threads;
  unsigned cluster = 0;   // blocks along x that run together; 0: no clusters
  unsigned shared = 0;    // bytes of dynamic shared memory
  bool overlaps = false;  // the kernel may begin before the one before it ends
  struct {
    const void* data;
    std::int64_t bytes;
  } constants[2] = {};  // what it may read before wait_for_previous
};
// `call` calls the kernel with what lies in the `bytes` bytes from `arguments` on.
int launch(const void* kernel, const Grid& grid, void (*call)(const void* arguments),
           const void* arguments, std::size_t bytes);
int allow_shared(const void* kernel, int bytes);
int allow_large_clusters(const void* kernel);  // of up to 16 blocks; 8 without
const char* describe(int status);
constexpr int kInvalidValue = 1, kFault = 2;

template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), const Grid& grid, Arguments... arguments) {
  const auto call = [=] { kernel(Parameters(arguments)...); };
  return launch(
      reinterpret_cast<const void*>(kernel), grid,
      [](const void* one) { (*static_cast<const decltype(call)*>(one))(); }, &call, sizeof(call));
}

// Results under 2^-126 become 0, as of the hardware's fast functions.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

}  // namespace fusedops::model
