#include "emulator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>

#include "fiber.h"

namespace emulator {
namespace {

constexpr uint32_t kSimdWidth = 32;
constexpr uint32_t kMaxThreads = 1024;
constexpr size_t kMaxThreadgroupBytes = 32768;

enum class State : uint8_t { ready, at_simd_op, at_barrier, done };

struct Simdgroup {
  uint32_t words[2][kSimdWidth * kMaxSimdWords];  // of even and of odd exchanges: a lane may be one ahead
  uint32_t lanes[2] = {};
  uint64_t exchanges = 0;
  uint32_t live = 0;
  uint32_t arrived = 0;
  int op = -1;  // that the waiting lanes are at
};

struct Thread {
  Fiber* fiber = nullptr;
  State state = State::ready;
  Position position;
  uint32_t barriers = 0;                      // it has come to
  uint32_t seen[kSimdWidth * kMaxSimdWords];  // the words of the last exchange
};

struct Threadgroup {
  const Kernel* kernel = nullptr;
  const Buffers* buffers = nullptr;
  const Dispatch* dispatch = nullptr;
  std::vector<Thread> threads;
  std::vector<Simdgroup> simdgroups;
  std::map<int, std::unique_ptr<char[]>> memory;
  size_t memory_bytes = 0;
  uint32_t live = 0;
  uint32_t at_barrier = 0;
  Thread* now = nullptr;
  const char* fault = nullptr;  // what `now` did wrong
};

Threadgroup* running = nullptr;
// A dispatch happens before its threads, they before what follows it.
char start_edge;
char finish_edge;

// A loop of volatile values: memcpy is seen by ThreadSanitizer even in files that it does not instrument.
void copy(uint32_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    static_cast<volatile uint32_t*>(to)[i] = static_cast<const volatile uint32_t*>(from)[i];
  }
}

uint32_t lane_of(const Thread& thread) {
  return thread.position.index() % kSimdWidth;
}
Simdgroup& simdgroup_of(const Thread& thread) {
  return running->simdgroups[thread.position.index() / kSimdWidth];
}

// It may never run again, after a fault of another thread; what it has done so far happens before the dispatch ends.
void pause_thread() {
  release_edge(&finish_edge);
  leave_fiber();
}

// The thread never runs again, so nothing on its stack may own memory.
[[noreturn]] void fail(const char* what) {
  running->fault = what;
  for (;;) pause_thread();
}

void release_simdgroup(Simdgroup& simdgroup) {
  uint32_t lanes = 0;
  const size_t first = static_cast<size_t>(&simdgroup - running->simdgroups.data()) * kSimdWidth;
  for (size_t i = first; i < std::min(first + kSimdWidth, running->threads.size()); ++i) {
    if (running->threads[i].state != State::at_simd_op) continue;
    lanes |= 1U << (i - first);
    running->threads[i].state = State::ready;
  }
  simdgroup.lanes[simdgroup.exchanges++ % 2] = lanes;
  simdgroup.arrived = 0;
  simdgroup.op = -1;
}

void release_barrier() {
  for (Thread& thread : running->threads) {
    if (thread.state == State::at_barrier) thread.state = State::ready;
  }
  running->at_barrier = 0;
}

// A thread that has returned no longer takes part: the others may be complete without it.
void end_thread() {
  Thread& thread = *running->now;
  thread.state = State::done;
  Simdgroup& simdgroup = simdgroup_of(thread);
  --running->live;
  --simdgroup.live;
  if (simdgroup.live > 0 && simdgroup.arrived == simdgroup.live) release_simdgroup(simdgroup);
  // Metal leaves it undefined when some threads return and others wait at a barrier.
  if (running->at_barrier > 0) fail("a thread returned while others wait at a barrier");
}

void run_kernel() {
  acquire_edge(&start_edge);
  running->kernel->run(*running->buffers, running->now->position);
  release_edge(&finish_edge);
  end_thread();
}

void prepare(Threadgroup& group, const Dispatch& what, const Size& at) {
  const uint32_t count = what.threads.x * what.threads.y * what.threads.z;
  group.threads.resize(count);
  group.simdgroups.resize((count + kSimdWidth - 1) / kSimdWidth);
  group.live = count;
  for (uint32_t i = 0; i < count; ++i) {
    const Size local{i % what.threads.x, i / what.threads.x % what.threads.y, i / what.threads.x / what.threads.y};
    group.threads[i].position = {at, local, what.threads, what.groups};
    group.threads[i].fiber = start_fiber(i, run_kernel);
    ++group.simdgroups[i / kSimdWidth].live;
  }
}

void run_to_end(Threadgroup& group, Order order, std::mt19937& random) {
  std::vector<size_t> turns(group.threads.size());
  for (size_t i = 0; i < turns.size(); ++i) turns[i] = order == Order::reverse ? turns.size() - 1 - i : i;
  while (group.live > 0 && group.fault == nullptr) {
    if (order == Order::shuffled) std::shuffle(turns.begin(), turns.end(), random);
    bool ran = false;
    for (const size_t i : turns) {
      if (group.threads[i].state != State::ready) continue;
      ran = true;
      group.now = &group.threads[i];
      enter_fiber(group.now->fiber);
      if (group.fault != nullptr) return;
    }
    if (!ran) group.fault = "threads wait where others never arrive";
  }
}

std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

std::set<uint64_t>& sources() {
  static std::set<uint64_t> all;
  return all;
}

}  // namespace

uint32_t simd_lane() {
  return lane_of(*running->now);
}

SimdWords simd_exchange(const uint32_t* words, int count, int op) {
  Thread& thread = *running->now;
  Simdgroup& simdgroup = simdgroup_of(thread);
  if (simdgroup.op >= 0 && simdgroup.op != op) fail("lanes of a simdgroup are at different simd operations");
  simdgroup.op = op;
  const uint64_t turn = simdgroup.exchanges % 2;
  const auto each = static_cast<size_t>(count);
  copy(&simdgroup.words[turn][lane_of(thread) * each], words, each);
  thread.state = State::at_simd_op;
  if (++simdgroup.arrived == simdgroup.live) {
    release_simdgroup(simdgroup);
  } else {
    pause_thread();
  }
  copy(thread.seen, simdgroup.words[turn], kSimdWidth * each);
  return {thread.seen, simdgroup.lanes[turn]};
}

void simdgroup_barrier(int op) {
  Simdgroup& simdgroup = simdgroup_of(*running->now);
  release_edge(&simdgroup);
  simd_exchange(nullptr, 0, op);
  acquire_edge(&simdgroup);
}

void threadgroup_barrier() {
  if (running->now->barriers++ == running->dispatch->skipped_barrier) return;
  if (running->live != running->threads.size()) fail("a barrier after a thread has returned");
  release_edge(running);
  running->now->state = State::at_barrier;
  if (++running->at_barrier == running->live) {
    release_barrier();
  } else {
    pause_thread();
  }
  acquire_edge(running);
}

void* threadgroup_memory(int id, size_t bytes) {
  auto& memory = running->memory[id];
  if (!memory) {
    running->memory_bytes += bytes;
    if (running->memory_bytes > kMaxThreadgroupBytes) fail("more than 32 KiB of threadgroup memory");
    memory.reset(new char[bytes]);
    for (size_t i = 0; i < bytes; ++i) static_cast<volatile char*>(memory.get())[i] = static_cast<char>(0xff);  // NaN
    release_edge(memory.get());  // making it is not part of the kernel
  }
  acquire_edge(memory.get());
  return memory.get();
}

void* threadgroup_parameter(int index) {
  const std::vector<size_t>& bytes = running->dispatch->threadgroup_bytes;
  if (static_cast<size_t>(index) >= bytes.size()) fail("a threadgroup parameter has no length");
  return threadgroup_memory(-1 - index, bytes[static_cast<size_t>(index)]);
}

FunctionConstant::operator bool() const {
  if (!running->dispatch->constants) fail("a function constant has no value");
  return (*running->dispatch->constants >> index & 1U) != 0;
}

Registration::Registration(const Kernel& kernel) {
  kernels().emplace(kernel.name, kernel);
}

SourceRegistration::SourceRegistration(uint64_t fingerprint) {
  sources().insert(fingerprint);
}

bool has_source(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return sources().contains(value);
}

bool has_kernel(const std::string& name) {
  return kernels().contains(name);
}

const std::vector<int>& buffers_of(const std::string& name) {
  return kernels().at(name).buffers;
}

void dispatch(const Dispatch& what, const Buffers& buffers) {
  const auto found = kernels().find(what.kernel);
  if (found == kernels().end()) throw std::runtime_error(what.kernel + ": no such kernel");
  for (const int index : found->second.buffers) {
    if (!buffers.contains(index)) {
      throw std::runtime_error(what.kernel + ": buffer " + std::to_string(index) + " is not bound");
    }
  }
  const uint64_t count = uint64_t{what.threads.x} * what.threads.y * what.threads.z;
  if (count == 0 || count > kMaxThreads) {
    throw std::runtime_error(what.kernel + ": " + std::to_string(count) + " threads in a threadgroup");
  }
  std::mt19937 random(1);
  // For ThreadSanitizer kept to the end: what one group frees another must not get, or it would see them share memory.
  std::vector<std::unique_ptr<Threadgroup>> groups;
  std::string error;
  for (uint32_t z = 0; z < what.groups.z; ++z) {
    for (uint32_t y = 0; y < what.groups.y; ++y) {
      for (uint32_t x = 0; x < what.groups.x && error.empty(); ++x) {
#if !defined(EMULATOR_TSAN)
        groups.clear();
#endif
        Threadgroup& group = *groups.emplace_back(std::make_unique<Threadgroup>());
        group.kernel = &found->second;
        group.buffers = &buffers;
        group.dispatch = &what;
        running = &group;
        prepare(group, what, {x, y, z});
        release_edge(
            &start_edge);  // the groups stay concurrent to each other: nothing of theirs is acquired before the end
        run_to_end(group, what.order, random);
        if (group.fault != nullptr) {
          error = what.kernel + ": " + group.fault + " (thread " + std::to_string(group.now->position.index()) + ")";
        }
      }
    }
  }
  acquire_edge(&finish_edge);
  running = nullptr;
  if (!error.empty()) throw std::runtime_error(error);
}

}  // namespace emulator
