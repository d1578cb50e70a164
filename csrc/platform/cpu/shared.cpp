// Shared memory: addresses, asynchronous copies to it, and what the blocks of a cluster read of it.
#include <algorithm>
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

namespace {

// What is known of the word of another block at the place of `mine`.
Word& word_of(Block& owner, const char* mine) {
  const Block& block = *machine.current->block;
  return within(mine, block.dynamic, machine.grid.shared)
             ? owner.of_dynamic[static_cast<std::size_t>(mine - block.dynamic) / 4]
             : owner.of_static[static_cast<std::size_t>(mine - machine.static_shared) / 4];
}

// Lets the block have written the 4 bytes of its static shared memory from `begin` on.
void extend(Block& block, std::size_t begin) {
  const std::size_t end = begin + 4;
  const bool empty = block.high <= block.low;
  const std::size_t low = empty ? begin : block.low, high = empty ? begin : block.high;
  block.low = std::min(low, begin);
  block.high = std::max(high, end);
  if (&block == machine.active) return;
  block.saved.resize(machine.static_bytes);
  const auto poison = [&](std::size_t from, std::size_t to) {
    if (from < to) std::memset(block.saved.data() + from, kPoison, to - from);
  };
  poison(block.low, low);
  poison(high, block.high);
}

}  // namespace

void touch_remote(Block& owner, const char* mine, const void* pc) {
  const Thread& thread = *machine.current;
  if (owner.live == 0) fail(pc, "reads the shared memory of a block that has ended");
  Word& word = word_of(owner, mine);
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

bool has_received(const Thread& thread, const void* box) {
  return std::find(thread.received.begin(), thread.received.end(), box) != thread.received.end();
}

void mail_open(const void* box, unsigned values) {
  const void* const pc = __builtin_return_address(0);
  Thread& thread = *machine.current;
  touch(box, 8, true, pc);
  if (thread.block->mail.count(box)) fail(pc, "opens a mailbox twice");
  thread.block->mail[box] = {values, false, touch_of(thread, 15, pc).phase};
}

void mail_reopen(const void* box, unsigned values) {
  const void* const pc = __builtin_return_address(0);
  const Thread& thread = *machine.current;
  if (!has_received(thread, box)) fail(pc, "opens a mailbox again that it has not received from");
  thread.block->mail.at(box).missing = values;
}

void mail_send(float value, float* mine, const void* box, unsigned block) {
  const void* const pc = __builtin_return_address(0);
  const Thread& thread = *machine.current;
  if (machine.grid.cluster == 0) fail(pc, "sends to a block in a launch without clusters");
  if (block >= machine.cluster) fail(pc, "sends to a block that is not there");
  Block& owner = *machine.blocks[block];
  if (owner.live == 0) fail(pc, "sends to a block that has ended");
  const auto at = owner.mail.find(box);
  if (at == owner.mail.end() || at->second.phase >= touch_of(thread, 15, pc).phase) {
    fail(pc, "sends to a mailbox without a barrier of the cluster after it was opened");
  }
  if (at->second.missing == 0) fail(pc, "sends more values than the mailbox was opened for");
  const auto* const place = reinterpret_cast<const char*>(mine);
  Word& word = word_of(owner, place);
  word.write = touch_of(thread, 15, pc);
  word.write.block = owner.serial;
  word.mail = box;
  if (within(mine, machine.static_shared, machine.static_bytes)) {
    extend(owner, static_cast<std::size_t>(place - machine.static_shared));
  }
  *(&owner == thread.block ? mine : in_block(owner, place)) = value;
  at->second.sent = true;
  // What was received is of the round before.
  for (Thread& other : owner.threads) {
    other.received.erase(std::remove(other.received.begin(), other.received.end(), box),
                         other.received.end());
  }
  if (--at->second.missing > 0) return;
  ++at->second.rounds;
  for (Thread& other : owner.threads) {
    if (other.at != At::mail) continue;
    other.at = At::ready;
    owner.ready.push_back(other.number);
  }
}

void mail_receive(const void* box, unsigned round) {
  Thread& thread = *machine.current;
  thread.pc = __builtin_return_address(0);
  const auto at = thread.block->mail.find(box);
  if (at == thread.block->mail.end()) fail(thread.pc, "receives from a mailbox that is not open");
  while (at->second.rounds <= round) {
    thread.at = At::mail;
    leave(thread);
  }
  if (at->second.rounds > round + 1) fail(thread.pc, "receives values of a round that is over");
  thread.received.push_back(box);
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
  std::memset(copy.to, 0, 16);
  std::memcpy(copy.to, copy.from, copy.bytes);
}

}  // namespace

void copy_start(unsigned to, const void* from, unsigned bytes) {
  const void* const pc = __builtin_return_address(0);
  Thread& thread = *machine.current;
  char* const place = static_cast<char*>(shared_pointer(to));
  touch(place, 16, true, pc);
  if (bytes > 0) touch(from, bytes, false, pc);
  std::memset(place, kPoison, 16);
  mark(thread, place, thread.block->serial);
  thread.copies.push_back({place, static_cast<const char*>(from), bytes, pc});
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
