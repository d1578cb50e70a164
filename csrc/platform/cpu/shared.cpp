// Shared memory: addresses, asynchronous copies to it, and what the blocks of a cluster read of it.
#include <cstring>

#include "platform/cpu/state.h"

namespace fusedops::model {

float* in_block(Block& owner, const char* mine) {
  const Block& block = *machine.current->block;
  const auto from_dynamic = static_cast<std::size_t>(mine - block.dynamic);
  if (within(mine, block.dynamic, machine.grid.shared)) {
    return reinterpret_cast<float*>(owner.dynamic + from_dynamic);
  }
  owner.saved.resize(machine.static_bytes);
  return reinterpret_cast<float*>(owner.saved.data() + (mine - machine.static_shared));
}

void touch_remote(Block& owner, const char* mine, const void* pc) {
  const Thread& thread = *machine.current;
  const bool dynamic = within(mine, thread.block->dynamic, machine.grid.shared);
  if (owner.live == 0) fail(pc, "reads the shared memory of a block that has ended");
  Word& word = dynamic
                   ? owner.of_dynamic[static_cast<std::size_t>(mine - thread.block->dynamic) / 4]
                   : owner.of_static[static_cast<std::size_t>(mine - machine.static_shared) / 4];
  Touch now = touch_of(thread, 15, pc);
  if (word.write.block != owner.serial || word.write.phase >= now.phase) {
    machine.other = word.write.pc;
    fail(pc, "reads shared memory of block " + text_of(owner.index) +
                 " without a barrier of the cluster after it was written, at ");
  }
  owner.read_remotely = true;
  now.many = 2;
  now.block = owner.serial;
  now.epoch = owner.epoch;
  word.read = now;
}

unsigned shared_address(const void* data) {
  constexpr unsigned kDynamic = 1u << 24;
  const Block& block = *machine.current->block;
  const auto* const at = static_cast<const char*>(data);
  if (within(data, machine.static_shared, machine.static_bytes)) {
    return static_cast<unsigned>(at - machine.static_shared);
  }
  return kDynamic + static_cast<unsigned>(at - block.dynamic);
}

void* shared_pointer(unsigned address) {
  constexpr unsigned kDynamic = 1u << 24;
  if (address < kDynamic / 2) return machine.static_shared + address;
  return machine.current->block->dynamic + static_cast<std::int32_t>(address - kDynamic);
}

void* dynamic_shared() { return machine.current->block->dynamic; }

namespace {

// Marks the words that a copy of the block is on its way to; 0 for none.
void mark(const Thread& thread, const char* to, std::uint32_t pending) {
  Block& block = *thread.block;
  const bool is_static = within(to, machine.static_shared, machine.static_bytes);
  std::vector<Word>& words = is_static ? block.of_static : block.of_dynamic;
  const auto at =
      static_cast<std::size_t>(to - (is_static ? machine.static_shared : block.dynamic));
  for (std::size_t i = 0; i < 4; ++i) words[at / 4 + i].pending = pending;
}

void arrive(const Thread& thread, const Copy& copy) {
  mark(thread, copy.to, 0);
  touch(copy.to, 16, true, copy.pc);
  if (copy.from) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

}  // namespace

void copy_start(unsigned to, const void* from, bool valid) {
  const void* const pc = __builtin_return_address(0);
  Thread& thread = *machine.current;
  char* const place = static_cast<char*>(shared_pointer(to));
  touch(place, 16, true, pc);
  if (valid) touch(from, 16, false, pc);
  std::memset(place, 0xff, 16);
  mark(thread, place, thread.block->serial);
  thread.copies.push_back({place, valid ? static_cast<const char*>(from) : nullptr, pc});
}

void copy_commit() {
  Thread& thread = *machine.current;
  thread.groups.push_back(std::move(thread.copies));
  thread.copies.clear();
}

void copy_wait(int pending) {
  Thread& thread = *machine.current;
  while (thread.groups.size() > static_cast<std::size_t>(pending)) {
    for (const Copy& copy : thread.groups.front()) arrive(thread, copy);
    thread.groups.erase(thread.groups.begin());
  }
}

}  // namespace fusedops::model
