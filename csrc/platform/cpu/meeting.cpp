// What device code calls: its place, and where threads meet.
#include "platform/cpu/state.h"

namespace fusedops::model {

void leave(Thread& thread) {
  check_same();
  switch_contexts(thread.context, machine.host);
}

void barrier_of_warp(void* const*, int) {}

uint3 thread_index() { return machine.current->index; }
uint3 block_index() { return machine.current->block->index; }
dim3 block_dim() { return machine.grid.threads; }
dim3 grid_dim() { return machine.grid.blocks; }

void block_barrier() {
  Thread& thread = *machine.current;
  thread.pc = __builtin_return_address(0);
  thread.at = At::block_barrier;
  ++thread.block->waiting;
  leave(thread);
}

void meet_at(Act act, void* arguments, const void* pc) {
  Thread& thread = *machine.current;
  thread.pc = pc;
  thread.at = At::warp;
  thread.act = act;
  thread.arguments = arguments;
  ++thread.warp->waiting;
  leave(thread);
}

namespace {

struct Exchange {
  unsigned in, out;
  int from;
};

unsigned exchange(unsigned word, int from, const void* pc) {
  Exchange mine{word, 0, from};
  const auto act = [](void* const* arguments, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      auto* const one = static_cast<Exchange*>(arguments[lane]);
      if (!one) continue;
      const bool there = one->from >= 0 && one->from < lanes && arguments[one->from];
      one->out = there ? static_cast<Exchange*>(arguments[one->from])->in : 0xffffffffu;
      if (!there) one->from = -1;
    }
  };
  meet_at(act, &mine, pc);
  if (mine.from < 0) fail(pc, "takes the value of a thread of its warp that is not there");
  return mine.out;
}

}  // namespace

void meet(Act act, void* arguments) { meet_at(act, arguments, __builtin_return_address(0)); }

unsigned shuffle(unsigned word, int from) {
  return exchange(word, from, __builtin_return_address(0));
}
unsigned shuffle_xor(unsigned word, int mask) {
  return exchange(word, machine.current->lane ^ mask, __builtin_return_address(0));
}
unsigned shuffle_up(unsigned word, int width) {
  const int lane = machine.current->lane;
  return exchange(word, lane % width == 0 ? lane : lane - 1, __builtin_return_address(0));
}
void warp_barrier() { meet_at(barrier_of_warp, nullptr, __builtin_return_address(0)); }

unsigned cluster_size() { return machine.cluster; }
unsigned cluster_rank() { return machine.current->block->rank; }

void cluster_arrive() {
  Thread& thread = *machine.current;
  if (thread.arrived) fail(__builtin_return_address(0), "arrives twice at the cluster's barrier");
  thread.arrived = true;
  thread.arrived_phase = machine.phase;
  ++machine.arrived;
}

void cluster_wait() {
  Thread& thread = *machine.current;
  thread.pc = __builtin_return_address(0);
  if (!thread.arrived) fail(thread.pc, "waits for the cluster without arriving first");
  if (machine.phase == thread.arrived_phase) {
    thread.at = At::cluster;
    leave(thread);
  }
  thread.arrived = false;
}

float cluster_read(const float* mine, unsigned block) {
  const void* const pc = __builtin_return_address(0);
  if (block >= machine.cluster) fail(pc, "reads the shared memory of a block that is not there");
  Block& owner = *machine.blocks[block];
  const auto* const address = reinterpret_cast<const char*>(mine);
  if (&owner == machine.current->block) {
    touch(mine, sizeof(float), false, pc);
    return *mine;
  }
  touch_remote(owner, address, pc);
  return *in_block(owner, address);
}

std::int32_t count_up(std::int32_t* counter) {
  touch(counter, sizeof(*counter), false, __builtin_return_address(0));
  Block& block = *machine.current->block;
  block.counts.push_back(machine.time);
  block.seen_until = ++machine.time;
  return (*counter)++;
}

void wait_for_previous() { machine.current->waited = true; }

void trap() { fail(__builtin_return_address(0), "ends the kernel with a trap"); }

}  // namespace fusedops::model
