// What is found in an answer: text, thinking, and calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inferno::calls {

enum class EventKind : uint8_t {
  text,
  thinking,
  call,       // a call begins: its name
  arguments,  // of the call that began last: a piece of its JSON
  call_end,
};

struct Event {
  EventKind kind;
  std::string text = {};  // empty: of call_end alone
  bool operator==(const Event&) const = default;
};

// Collects events; neighbours of one kind become one. Space between text and a call, and between calls, is dropped.
class EventList {
 public:
  void text(std::string_view piece);
  void thinking(std::string_view piece) { add(EventKind::thinking, piece); }
  void call(std::string_view name);
  void arguments(std::string_view piece) { add(EventKind::arguments, piece); }
  void call_end();
  // Ends the call that is open, if one is.
  void close() {
    if (in_call_) call_end();
  }
  // The end of the text: space that was held back.
  void finish();

  [[nodiscard]] std::vector<Event> take() { return std::exchange(events_, {}); }

 private:
  void add(EventKind kind, std::string_view piece);

  std::vector<Event> events_;
  std::string space_;  // after a text, in case a call follows
  bool in_call_ = false;
  bool after_call_ = false;  // no text since
};

}  // namespace inferno::calls
