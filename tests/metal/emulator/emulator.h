// Runs kernels of a translated Metal source on this CPU, strictly.
//
// The threads of a threadgroup are fibers of one CPU thread, in simdgroups of 32; they change at simd operations and
// barriers alone. Errors, each with the kernel's name: lanes of a simdgroup at different simd operations; a barrier
// that not all threads of the group reach; more than 1,024 threads; more than 32 KiB of threadgroup memory; a buffer
// that was not bound; a function constant without a value; a parameter in threadgroup memory without a length.
// Threadgroup memory is allocated to the byte and begins as NaN. AddressSanitizer and ThreadSanitizer know the fibers:
// under the latter all threads of a dispatch are concurrent, except for what barriers order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

struct Size {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct Position {
  Size group;    // of this threadgroup in the grid
  Size local;    // of this thread in the threadgroup
  Size threads;  // of a threadgroup
  Size groups;   // in the grid
  [[nodiscard]] uint32_t index() const { return (local.z * threads.y + local.y) * threads.x + local.x; }
};

using Buffers = std::map<int, void*>;

struct Kernel {
  const char* name;
  std::vector<int> buffers;  // that must be bound
  void (*run)(const Buffers& buffers, const Position& position);
};

struct Registration {
  explicit Registration(const Kernel& kernel);
};

// A text that was translated.
struct SourceRegistration {
  explicit SourceRegistration(uint64_t fingerprint);
};
[[nodiscard]] bool has_source(std::string_view text);

enum class Order { forward, reverse, shuffled };

struct Dispatch {
  std::string kernel;
  Size groups;   // threadgroups in the grid
  Size threads;  // in each
  Order order = Order::forward;
  std::vector<size_t> threadgroup_bytes;         // of the kernel's parameters [[threadgroup(i)]]
  std::optional<uint32_t> constants = {};        // function constants by bit; none: the kernel has none
  std::optional<uint32_t> skipped_barrier = {};  // a planted fault: no thread waits at its barrier of this number
};

// std::runtime_error for each of the errors above.
void dispatch(const Dispatch& what, const Buffers& buffers);
[[nodiscard]] bool has_kernel(const std::string& name);
// Those that must be bound; of a kernel there is.
[[nodiscard]] const std::vector<int>& buffers_of(const std::string& name);

// ---- for translated sources, called in a running thread ----

// The array number `id` of the threadgroup.
void* threadgroup_memory(int id, size_t bytes);
// What the host gave the parameter [[threadgroup(index)]].
void* threadgroup_parameter(int index);
// Every live lane of the simdgroup comes here with its `count` words; afterwards all see all of them: words [lane,
// count]. lanes: which took part, by bit.
constexpr int kMaxSimdWords = 4;
struct SimdWords {
  const uint32_t* words;
  uint32_t lanes;
};
SimdWords simd_exchange(const uint32_t* words, int count, int op);
// Orders the memory of the simdgroup's lanes.
void simdgroup_barrier(int op);
uint32_t simd_lane();
void threadgroup_barrier();
// A function constant, as a bool.
struct FunctionConstant {
  int index;
  operator bool() const;
};

}  // namespace emulator
