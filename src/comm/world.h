// The ranks of this process: one, unless a launcher such as mpirun started it together with others and the program
// joined them. MPI is in a library of its own that is only loaded then, so that the program needs none.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace inferno {

// What the launcher says in the environment; size 1 without one.
struct Launch {
  int rank = 0;
  int size = 1;
  int local_size = 1;  // ranks on this machine
};
[[nodiscard]] Launch detect_launch(const char* (*environment)(const char* name));
[[nodiscard]] Launch detect_launch();

// Joins the other ranks, once, before threads are started: blocks until all have joined. An Error when the library of
// MPI cannot be loaded. Without others: nothing.
void join_world();
// Before join_world() a communicator of one rank.
[[nodiscard]] Communicator& world();

// What to write when a rank ends while others go on: "rank 1 (process 17 on host a) has ended". One rank says it, the
// first that lives, and only once: true for whoever may. Safe in signal handlers.
[[nodiscard]] bool may_report_failure() noexcept;
// The same text without allocation, into a buffer; empty when all live. Returns its length. Safe in signal handlers.
[[nodiscard]] size_t describe_dead_rank(char* text, size_t capacity) noexcept;

// The function that the library exports, and its name there. Null: not joined, and `error` has a line about it.
inline constexpr const char* kJoinFunction = "inferno_join_mpi";
using JoinFunction = Transport*(char* error, size_t error_bytes);

}  // namespace inferno
