// What one grammar may cost. Sources come from strangers: everything that grows is counted, nothing is timed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inferno::grammar {

struct Limits {
  size_t source_bytes = size_t{8} << 20;  // of a schema, pattern or grammar
  size_t json_values = 400'000;           // in a schema
  size_t json_members = 10'000;           // of one object of a schema
  int depth = 256;                        // of nested values, groups and subschemas
  size_t expressions = 1'000'000;         // parts of rules, repetitions not counted out
  size_t nfa_states = 2'000'000;          // of one rule, repetitions counted out
  size_t machine_states = 1'500'000;      // of all rules
  size_t machine_edges = 2'500'000;       // of all rules; with the states below 64 MB
  size_t subset_entries = 3'000'000;      // while one rule is made deterministic
  size_t alternatives = 4096;             // of one schema, when anyOf and oneOf are multiplied out
  size_t cache_bytes = size_t{32} << 20;  // of what is remembered while a text is made
  uint32_t stack_depth = 1000;            // of rules within rules while a text is made
  size_t parallel_states = 4096;          // ways to read the same text
};

}  // namespace inferno::grammar
