// Runs a grid: its blocks one after the other, those of a cluster side by side, the threads of a
// block in an order that is drawn from FUSEDOPS_SEED. A thread runs until it must wait for others.
#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>

#include "platform/cpu/state.h"

namespace fusedops::model {

Machine machine;

namespace {

// Touched so that the calling thread has the library's thread_local variables.
thread_local volatile char own_storage;

std::uint64_t seed() {
  const char* const text = std::getenv("FUSEDOPS_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

std::uint64_t draw(std::uint64_t below) {
  std::uint64_t& x = machine.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return (x >> 11) % below;
}

struct sigaction before_ours[2];  // for SIGSEGV and SIGBUS

// An access to an address that is no memory ends the launch, as any other fault.
void on_bad_address(int signal, siginfo_t*, void*) {
  if (machine.current) fail(machine.pc, "uses an address that is no memory");
  sigaction(signal, &before_ours[signal == SIGBUS], nullptr);  // and the access is tried again
}

// The handler has a stack of its own, because a thread's stack may be what has no room.
void watch_bad_addresses() {
  alignas(16) static char stack[64 << 10];
  static bool once = [] {
    struct sigaction ours{};
    ours.sa_sigaction = on_bad_address;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &before_ours[0]);
    sigaction(SIGBUS, &ours, &before_ours[1]);
    return true;
  }();
  static_cast<void>(once);
  stack_t used{};
  if (sigaltstack(nullptr, &used) == 0 && used.ss_flags & SS_DISABLE) {
    used = {};
    used.ss_sp = stack;
    used.ss_size = sizeof(stack);
    sigaltstack(&used, nullptr);
  }
}

// The library's own segments, and the calling thread's copy of its thread_local variables.
int find_library(dl_phdr_info* info, std::size_t, void*) {
  const auto own = reinterpret_cast<std::uintptr_t>(&find_library);
  std::uintptr_t low = UINTPTR_MAX, high = 0;
  std::size_t thread_bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = info->dlpi_phdr[i];
    if (part.p_type == PT_TLS) thread_bytes = part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    low = std::min(low, info->dlpi_addr + part.p_vaddr);
    high = std::max(high, info->dlpi_addr + part.p_vaddr + part.p_memsz);
  }
  if (own < low || own >= high) return 0;
  machine.image = reinterpret_cast<const char*>(low);
  machine.image_bytes = high - low;
  machine.static_shared = static_cast<char*>(info->dlpi_tls_data);
  machine.static_bytes = machine.static_shared ? thread_bytes : 0;
  return 1;
}

// Makes the block's static shared memory the one that its threads see.
void activate(Block& block) {
  Block* const before = machine.active;
  if (before == &block) return;
  if (before && before->high > before->low) {
    const std::size_t bytes = before->high - before->low;
    before->saved.resize(machine.static_bytes);
    std::memcpy(before->saved.data() + before->low, machine.static_shared + before->low, bytes);
    std::memset(machine.static_shared + before->low, kPoison, bytes);
  }
  machine.active = &block;
  if (block.high > block.low) {
    std::memcpy(machine.static_shared + block.low, block.saved.data() + block.low,
                block.high - block.low);
  }
}

void make_ready(Thread& thread) {
  thread.at = At::ready;
  thread.block->ready.push_back(thread.number);
}

void release_block(Block& block) {
  const Thread* first = nullptr;
  for (Thread& thread : block.threads) {
    if (thread.at != At::block_barrier) continue;
    if (!first) first = &thread;
    if (thread.pc != first->pc && place_of(thread.pc) != place_of(first->pc)) {
      record(*first, first->pc,
             "waits at the block's barrier, and " + name_of(thread) + " at another one, " +
                 place_of(thread.pc));
      return;
    }
  }
  block.waiting = 0;
  block.epoch += 2;  // past the cluster's next barrier, where threads have arrived there
  for (Thread& thread : block.threads) {
    if (thread.at == At::block_barrier) make_ready(thread);
  }
}

// Lets those of the warp that wait go on together. On AMD's GPUs two parts of a wavefront may wait
// in two branches: one part goes on, and the other later.
void release_warp(Block& block, Warp& warp) {
  const auto thread_of = [&](int lane) -> Thread& {
    return block.threads[static_cast<std::size_t>(warp.first + lane)];
  };
  void* arguments[64] = {};
  const Thread* first = nullptr;
  const int begin = static_cast<int>(draw(static_cast<std::uint64_t>(warp.count)));
  for (int i = 0; i < warp.count; ++i) {
    const int lane = (begin + i) % warp.count;
    const Thread& thread = thread_of(lane);
    if (thread.at != At::warp) continue;
    if (!first) first = &thread;
    if (thread.act == first->act) {
      arguments[lane] = thread.arguments;
    } else if (gpu().major != 0) {
      record(*first, first->pc,
             "exchanges values with its warp, and " + name_of(thread) +
                 " does something else there, at " + place_of(thread.pc));
      return;
    }
  }
  const Act act = first->act;
  act(arguments, warp.count);
  bool whole[2] = {true, true};  // every thread of the half takes part
  for (int lane = 0; lane < warp.count; ++lane) {
    Thread& thread = thread_of(lane);
    if (thread.at == At::end) continue;
    if (thread.at != At::warp || thread.act != act) {
      whole[lane / kHalf] = false;
      continue;
    }
    --warp.waiting;
    make_ready(thread);
  }
  for (int half = 0; half < 2; ++half) {
    if (act == &barrier_of_warp && whole[half]) ++warp.epochs[half];
  }
}

void release_cluster() {
  ++machine.phase;
  machine.arrived = 0;
  for (unsigned rank = 0; rank < machine.cluster; ++rank) {
    Block& block = *machine.blocks[rank];
    ++block.epoch;
    block.read_remotely = false;
    for (Thread& thread : block.threads) {
      if (thread.at == At::cluster) make_ready(thread);
    }
  }
}

// Lets those go on whose last companion has come or has ended.
void release_complete(Block& block, Warp& warp) {
  if (warp.live > 0 && warp.waiting == warp.live) release_warp(block, warp);
  if (machine.faulted) return;
  if (block.live > 0 && block.waiting == block.live) release_block(block);
  if (machine.live > 0 && machine.arrived == machine.live) release_cluster();
}

void begin_thread() {
  machine.call(machine.arguments);
  Thread& thread = *machine.current;
  if (machine.grid.overlaps && !thread.waited) {
    fail(nullptr,
         "ends without overlap::wait(), so the kernel after it may see half of what the "
         "kernel before it writes");
  }
  thread.at = At::end;
  --thread.warp->live;
  --thread.block->live;
  --machine.live;
  if (thread.arrived && thread.arrived_phase == machine.phase) --machine.arrived;
  leave(thread);
}

void prepare_threads(Block& block) {
  const dim3& dim = machine.grid.threads;
  const auto count = static_cast<int>(dim.x * dim.y * dim.z);
  const int width = gpu().wavefront;
  block.threads.resize(static_cast<std::size_t>(count));
  block.warps.assign(static_cast<std::size_t>((count + width - 1) / width), {});
  block.ready.clear();
  for (int i = 0; i < count; ++i) {
    Thread& thread = block.threads[static_cast<std::size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    char* const stack = stack_of(block.rank * 1024 + n);
    thread = Thread{};
    thread.context.stack = stack;
    thread.index = {n % dim.x, n / dim.x % dim.y, n / (dim.x * dim.y)};
    thread.number = i;
    thread.lane = i % width;
    thread.block = &block;
    thread.warp = &block.warps[static_cast<std::size_t>(i / width)];
    if (thread.lane == 0) thread.warp->first = i;
    ++thread.warp->count;
    ++thread.warp->live;
    begin_at(thread.context, begin_thread);
    make_ready(thread);
  }
  block.live = count;
  machine.live += count;
}

void prepare_block(Block& block, unsigned rank, const uint3& index) {
  block.index = index;
  block.rank = rank;
  block.serial = machine.next_serial++;
  block.epoch = 0;
  block.waiting = 0;
  block.low = machine.static_bytes;
  block.high = 0;
  block.counts.clear();
  block.seen_until = 0;
  block.mail.clear();
  block.read_remotely = false;
  block.of_static.resize(machine.static_bytes / 4 + 1);
  const std::size_t bytes = machine.grid.shared;
  block.of_dynamic.resize(std::max(block.of_dynamic.size(), bytes / 4 + 1));
  if (block.room.size() < bytes + 2 * kZone + 128) block.room.resize(bytes + 2 * kZone + 128);
  const auto begin = reinterpret_cast<std::uintptr_t>(block.room.data()) + kZone;
  block.dynamic = reinterpret_cast<char*>((begin + 127) / 128 * 128);
  std::memset(block.dynamic, kPoison, bytes);
  machine.places.push_back(index);
  prepare_threads(block);
}

void end_block(Block& block) {
  if (block.read_remotely) {
    record(block.threads[0], nullptr,
           "ends with its block, while another block of the cluster may still read the block's "
           "shared memory");
  }
  for (const auto& [box, mail] : block.mail) {
    if (!mail.sent) continue;
    const auto received = [box = box](const Thread& one) { return has_received(one, box); };
    if (std::any_of(block.threads.begin(), block.threads.end(), received)) continue;
    record(block.threads[0], nullptr,
           "ends with its block, which has not received from a mailbox that it opened");
  }
  for (Thread& thread : block.threads) {
    if (machine.cluster == 1 || !thread.arrived) continue;
    record(thread, nullptr,
           "ends after it arrived at the cluster's barrier, without waiting there");
    break;
  }
  machine.counts.push_back(block.counts);
  if (machine.active == &block) {
    if (block.high > block.low) {
      std::memset(machine.static_shared + block.low, kPoison, block.high - block.low);
    }
    machine.active = nullptr;
  }
}

// Nobody can run. On AMD's GPUs the part of a wavefront that is inside of a branch exchanges values
// while the other part waits after it.
bool release_partly() {
  if (gpu().major != 0) return false;
  bool released = false;
  for (unsigned rank = 0; rank < machine.cluster; ++rank) {
    Block& block = *machine.blocks[rank];
    for (Warp& warp : block.warps) {
      if (warp.waiting == 0 || machine.faulted) continue;
      release_warp(block, warp);
      released = true;
    }
  }
  return released;
}

std::string waits(const Thread& thread) {
  const char* const what = thread.at == At::block_barrier ? "the block's barrier"
                           : thread.at == At::warp        ? "its warp"
                           : thread.at == At::mail        ? "a mailbox"
                                                          : "the cluster";
  return std::string("waits for ") + what;
}

// Nobody can ever run: names two threads that wait for different things.
void report_deadlock() {
  const Thread *one = nullptr, *other = nullptr;
  for (unsigned rank = 0; rank < machine.cluster; ++rank) {
    for (const Thread& thread : machine.blocks[rank]->threads) {
      if (thread.at == At::end) continue;
      if (!one) one = &thread;
      if (!other && thread.at != one->at) other = &thread;
    }
  }
  record(*one, one->pc,
         waits(*one) + ", and " +
             (other ? name_of(*other) + " " + waits(*other) + " at " + place_of(other->pc)
                    : "nobody else comes"));
}

void run_cluster() {
  Block* block = nullptr;
  while (machine.live > 0 && !machine.faulted) {
    if (!block || block->ready.empty() || (machine.cluster > 1 && draw(64) == 0)) {
      block = nullptr;
      const auto first = static_cast<unsigned>(draw(machine.cluster));
      for (unsigned i = 0; i < machine.cluster && !block; ++i) {
        Block& one = *machine.blocks[(first + i) % machine.cluster];
        if (!one.ready.empty()) block = &one;
      }
      if (!block) {
        if (!release_partly()) report_deadlock();
        continue;
      }
    }
    activate(*block);
    const std::size_t at = draw(block->ready.size());
    Thread& thread = block->threads[static_cast<std::size_t>(block->ready[at])];
    block->ready[at] = block->ready.back();
    block->ready.pop_back();
    machine.current = &thread;
    ++machine.switches;
    switch_contexts(machine.host, thread.context);
    machine.current = nullptr;
    if (!machine.faulted) release_complete(*block, *thread.warp);
  }
}

void run_grid() {
  const dim3& grid = machine.grid.blocks;
  const std::uint64_t across = grid.x / machine.cluster;
  const std::uint64_t clusters = across * grid.y * grid.z;
  std::uint64_t step = 1 + draw(clusters), at = draw(clusters);
  while (std::gcd(step, clusters) != 1) ++step;
  for (std::uint64_t i = 0; i < clusters && !machine.faulted; ++i) {
    const auto x = static_cast<unsigned>(at % across) * machine.cluster;
    const auto y = static_cast<unsigned>(at / across % grid.y);
    const auto z = static_cast<unsigned>(at / across / grid.y);
    at = (at + step) % clusters;
    machine.phase = 0;
    machine.arrived = machine.live = 0;
    for (unsigned rank = 0; rank < machine.cluster; ++rank) {
      if (machine.blocks.size() <= rank) machine.blocks.push_back(std::make_unique<Block>());
      prepare_block(*machine.blocks[rank], rank, {x + rank, y, z});
    }
    run_cluster();
    for (unsigned rank = 0; rank < machine.cluster && !machine.faulted; ++rank) {
      end_block(*machine.blocks[rank]);
    }
    machine.blocks_run += machine.cluster;
  }
}

// What kernels were allowed beyond the limits of a launch.
struct Allowed {
  unsigned shared = 48 << 10;
  unsigned cluster = 8;
};

bool is_valid(const Grid& grid, const Allowed& allowed) {
  const dim3 &blocks = grid.blocks, &threads = grid.threads;
  const std::uint64_t count = std::uint64_t{threads.x} * threads.y * threads.z;
  return blocks.x > 0 && blocks.x < 1u << 31 && blocks.y > 0 && blocks.y < 1u << 16 &&
         blocks.z > 0 && blocks.z < 1u << 16 && count > 0 && count <= 1024 && threads.z <= 64 &&
         grid.cluster <= allowed.cluster &&
         (grid.cluster == 0 || (gpu().major == 9 && blocks.x % grid.cluster == 0)) &&
         grid.shared <= allowed.shared;
}

// By kernel: each that was launched is here.
std::unordered_map<const void*, Allowed> kernels;

Allowed& allowed(const void* kernel) { return kernels[kernel]; }

std::string last_fault;

}  // namespace

int launch(const void* kernel, const Grid& grid, void (*call)(const void*), const void* arguments,
           std::size_t bytes) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (!is_valid(grid, allowed(kernel))) return kInvalidValue;
  own_storage = 0;
  watch_bad_addresses();
  char* const before = machine.static_shared;
  dl_iterate_phdr(find_library, nullptr);
  if (machine.static_shared != before || machine.faulted) {
    std::memset(machine.static_shared, kPoison, machine.static_bytes);
  }
  machine.grid = grid;
  machine.kernel = kernel;
  machine.call = call;
  machine.arguments = static_cast<const char*>(arguments);
  machine.argument_bytes = bytes;
  machine.cluster = std::max(1u, grid.cluster);
  machine.active = nullptr;
  machine.faulted = false;
  machine.other = nullptr;
  machine.places.clear();
  machine.counts.clear();
  machine.time = 0;
  machine.accesses = 0;
  machine.first_serial = machine.next_serial;
  machine.random = (seed() * 0x9e3779b97f4a7c15u) ^ (++machine.launches * 0xbf58476d1ce4e5b9u);
  if (machine.random == 0) machine.random = 1;
  forget_memory();
  run_grid();
  machine.current = nullptr;
  if (!machine.faulted) return 0;
  last_fault = sentence();
  return kFault;
}

int allow_shared(const void* kernel, int bytes) {
  if (bytes > gpu().shared_of_block) return kInvalidValue;
  unsigned& most = allowed(kernel).shared;
  most = std::max(most, static_cast<unsigned>(bytes));
  return 0;
}

int allow_large_clusters(const void* kernel) {
  if (gpu().major != 9) return kInvalidValue;
  allowed(kernel).cluster = 16;
  return 0;
}

const char* describe(int status) {
  return status == kFault ? last_fault.c_str() : status == 0 ? "no error" : "invalid argument";
}

}  // namespace fusedops::model

// What the harness prints: launches, blocks and switches since the library was loaded.
extern "C" __attribute__((visibility("default"))) void fusedops_model_counts(std::uint64_t* out) {
  using fusedops::model::machine;
  out[0] = machine.launches;
  out[1] = machine.blocks_run;
  out[2] = machine.switches;
}
// The kernels launched since then, as offsets in the library: at most `room`. Returns their number.
extern "C" __attribute__((visibility("default"))) std::size_t fusedops_model_kernels(
    std::uint64_t* out, std::size_t room) {
  using fusedops::model::kernels;
  Dl_info info{};
  std::size_t count = 0;
  for (const auto& each : kernels) {
    if (count == room || !dladdr(each.first, &info)) break;
    out[count++] = static_cast<std::uint64_t>(static_cast<const char*>(each.first) -
                                              static_cast<const char*>(info.dli_fbase));
  }
  return count;
}
extern "C" __attribute__((visibility("default"))) const char* fusedops_model_name() {
  return fusedops::model::gpu().name;
}
