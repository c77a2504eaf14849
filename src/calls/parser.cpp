#include "calls/parser.h"

#include "calls/reader.h"

namespace inferno::calls {

Parser::Parser(Format format, std::shared_ptr<const ToolList> tools)
    : reader_(std::make_unique<Reader>(spec_of(format), std::move(tools))) {}
Parser::~Parser() = default;
Parser::Parser(Parser&& other) noexcept = default;
Parser& Parser::operator=(Parser&& other) noexcept = default;

std::vector<Event> Parser::push(std::string_view text) {
  return reader_->push(text);
}

std::vector<Event> Parser::finish() {
  return reader_->finish();
}

namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

void EventList::add(EventKind kind, std::string_view piece) {
  if (piece.empty()) return;
  if (events_.empty() || events_.back().kind != kind) {
    events_.push_back({kind, std::string(piece)});
  } else {
    events_.back().text += piece;
  }
}

void EventList::text(std::string_view piece) {
  if (after_call_ || !space_.empty()) {
    const size_t first = piece.find_first_not_of(kSpace);
    if (!after_call_) space_ += piece.substr(0, first);
    if (first == std::string_view::npos) return;
    add(EventKind::text, std::exchange(space_, {}));
    piece.remove_prefix(first);
    after_call_ = false;
  }
  const size_t end = piece.find_last_not_of(kSpace) + 1;  // npos + 1: all of it is space
  add(EventKind::text, piece.substr(0, end));
  space_ = piece.substr(end);
}

void EventList::call(std::string_view name) {
  space_.clear();
  events_.push_back({EventKind::call, std::string(name)});
  in_call_ = true;
}

void EventList::call_end() {
  events_.push_back({EventKind::call_end});
  in_call_ = false;
  after_call_ = true;
}

void EventList::finish() {
  close();
  add(EventKind::text, std::exchange(space_, {}));
}

}  // namespace inferno::calls
