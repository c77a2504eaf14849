// Where foreign kernels take their parameters from.
#pragma once

#include "emulator.h"

namespace emulator {

enum class Source {
  buffer,
  threadgroup_memory,
  thread_position_in_grid,
  threadgroup_position_in_grid,
  thread_position_in_threadgroup,
  threads_per_threadgroup,
  threadgroups_per_grid,
  thread_index_in_threadgroup,
  thread_index_in_simdgroup,
  simdgroup_index_in_threadgroup,
  simdgroups_per_threadgroup,
};

struct Parameter {
  Source source;
  int index;              // of a buffer or of threadgroup memory
  bool optional = false;  // the buffer need not be bound
};

inline Size position_of(Source source, const Position& p) {
  switch (source) {
    case Source::thread_position_in_grid:
      return {p.group.x * p.threads.x + p.local.x, p.group.y * p.threads.y + p.local.y,
              p.group.z * p.threads.z + p.local.z};
    case Source::threadgroup_position_in_grid:
      return p.group;
    case Source::thread_position_in_threadgroup:
      return p.local;
    case Source::threads_per_threadgroup:
      return p.threads;
    case Source::threadgroups_per_grid:
      return p.groups;
    case Source::thread_index_in_threadgroup:
      return {p.index()};
    case Source::thread_index_in_simdgroup:
      return {p.index() % 32};
    case Source::simdgroup_index_in_threadgroup:
      return {p.index() / 32};
    case Source::simdgroups_per_threadgroup:
      return {(p.threads.x * p.threads.y * p.threads.z + 31) / 32};
    default:
      return {};
  }
}

// The buffers that must be bound.
template <typename Parameters>
std::vector<int> buffers_in(const Parameters& parameters) {
  std::vector<int> buffers;
  for (const Parameter& parameter : parameters) {
    if (parameter.source == Source::buffer && !parameter.optional) buffers.push_back(parameter.index);
  }
  return buffers;
}

}  // namespace emulator
