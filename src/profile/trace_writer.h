// A trace of steps for ui.perfetto.dev and chrome://tracing (the JSON form both read).
//
// One track shows steps, in them layers, in them ops: the intervals the profile adds up. One more track per worker
// shows its own work on each op, its waits for the others, and its sleep between dispatches. Waits in the middle of an
// op are drawn at its end: only their length is known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "profile/profile.h"

namespace inferno {

class TraceWriter {
 public:
  // Opens the file immediately, so that an unwritable path is an Error before any work is done.
  TraceWriter(const std::string& path, std::string backend);

  void add_step(const StepTimes& times, const StepView& view);
  // Writes what is left and puts the file in place.
  void finish();

 private:
  void track(int id, const std::string& name);
  void span(int track, std::string_view category, std::string_view name, uint64_t begin, uint64_t end);
  [[nodiscard]] uint64_t nanoseconds(uint64_t ticks) const;  // since origin_
  void append_number(uint64_t value);
  void append_microseconds(uint64_t ns);
  void flush();

  AtomicOutputFile file_;
  std::string backend_;
  std::string text_;  // events not written yet
  bool first_event_ = true;
  int workers_ = 0;
  int64_t steps_ = 0;
  int64_t position_ = 0;   // decoded tokens so far
  uint64_t origin_ = 0;    // ticks at which the trace begins; may be before the clock's zero, modulo 2^64
  uint64_t last_end_ = 0;  // of the last step
  double ns_per_tick_ = 1;
  std::vector<uint64_t> asleep_since_;  // per worker
};

// Why a text is not a valid trace; empty when it is: valid JSON, all events complete, tracks named, spans of a track
// disjoint or nested.
[[nodiscard]] std::string check_trace(const std::string& text);

}  // namespace inferno
