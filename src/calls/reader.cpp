#include "calls/reader.h"

#include <algorithm>
#include <array>

namespace inferno::calls {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_name_byte(int c) {
  constexpr std::string_view kOthers = "-_.:/";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c > 0 && kOthers.find(static_cast<char>(c)) != std::string_view::npos);
}

}  // namespace

Reader::Reader(const FormatSpec& format, std::shared_ptr<const ToolList> tools)
    : format_(format), tools_(std::move(tools)) {
  run_.emplace(run());
  input_.start(run_->frame());
}

std::vector<Event> Reader::push(std::string_view text) {
  if (!text.empty()) input_.resume(text);
  return events_.take();
}

std::vector<Event> Reader::finish() {
  input_.end();
  (void)run_->result();
  events_.finish();
  return events_.take();
}

char Reader::keep() {
  kept_.push_back(input_.take());
  return kept_.back();
}

void Reader::give_back() {
  events_.close();
  events_.text(kept_);
  forget();
}

void Reader::begin_call(std::string_view name) {
  events_.call(name);
  forget();
}

Task<bool> Reader::run() {
  if (format_.syntax == Syntax::harmony) {
    co_await harmony();
  } else if (format_.syntax == Syntax::bare_objects) {
    co_await bare_objects();
  } else if (format_.open.empty()) {
    co_await pythonic_list();
  } else {
    co_await answer_with_markers();
  }
  give_back();
  co_return co_await rest_is_text();
}

Task<bool> Reader::answer_with_markers() {
  const std::array<std::string_view, 3> markers = {format_.open, format_.group_open, format_.group_close};
  const size_t count = format_.group_open.empty() ? 1 : markers.size();
  for (;;) {
    const int marker = co_await text_to(std::span(markers).first(count));
    if (marker < 0) co_return true;
    if (marker == 0) {
      const bool is_good = co_await marked();
      if (!is_good) give_back();
    }
    forget();
  }
}

// A call, or a list of them, after the opening marker.
Task<bool> Reader::marked() {
  co_await space();
  if (format_.syntax == Syntax::tags || format_.syntax == Syntax::object) co_return co_await tagged_calls();
  bool is_good = false;
  if (format_.syntax == Syntax::pythonic) {
    is_good = co_await pythonic_list();
  } else if (format_.syntax == Syntax::gemma) {
    is_good = co_await gemma_call();
  } else {
    is_good = co_await named_call();
  }
  if (!is_good || format_.close.empty()) co_return is_good;
  co_await space();
  // Granite leaves it out.
  const int next = co_await input_.next();
  if (format_.format == Format::granite_list && next != format_.close.front()) co_return true;
  co_return co_await literal(format_.close);
}

Task<int> Reader::text_to(std::span<const std::string_view> markers) {
  std::string held;  // with which a marker begins
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) {
      events_.text(held);
      co_return -1;
    }
    held.push_back(input_.take());
    const auto begins = [&](std::string_view marker) { return marker.starts_with(held); };
    while (std::ranges::none_of(markers, begins)) {
      events_.text(held.substr(0, 1));
      held.erase(0, 1);
    }
    const auto found = std::ranges::find(markers, held);
    if (held.empty() || found == markers.end()) continue;
    kept_ += held;
    co_return static_cast<int>(found - markers.begin());
  }
}

Task<bool> Reader::rest_is_text() {
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return true;
    const char byte = input_.take();
    events_.text({&byte, 1});
  }
}

Task<bool> Reader::literal(std::string_view text) {
  for (const char byte : text) {
    const int next = co_await input_.next();
    if (next != static_cast<unsigned char>(byte)) co_return false;
    keep();
  }
  co_return true;
}

Task<int> Reader::either(std::string_view a, std::string_view b) {
  size_t matched = 0;
  bool fits_a = true;
  bool fits_b = true;
  for (;; ++matched) {
    if (fits_a && matched == a.size()) co_return 0;
    if (fits_b && matched == b.size()) co_return 1;
    const int next = co_await input_.next();
    fits_a = fits_a && next == static_cast<unsigned char>(a[matched]);
    fits_b = fits_b && next == static_cast<unsigned char>(b[matched]);
    if (!fits_a && !fits_b) co_return -1;
    keep();
  }
}

Task<bool> Reader::space() {
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd || kSpace.find(static_cast<char>(next)) == std::string_view::npos) co_return true;
    keep();
  }
}

Task<bool> Reader::word(std::string* name) {
  for (;;) {
    const int next = co_await input_.next();
    if (!is_name_byte(next)) co_return !name->empty();
    if (name->size() == kMaxName) co_return false;
    name->push_back(keep());
  }
}

Task<bool> Reader::until(std::string_view marker, std::string* text) {
  // What is found is the beginning of `text` up to the marker, which is then cut off.
  size_t matched = 0;
  while (matched < marker.size()) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return false;
    text->push_back(keep());
    matched = std::min(matched + 1, marker.size());
    while (!text->ends_with(marker.substr(0, matched))) --matched;
  }
  text->resize(text->size() - marker.size());
  co_return true;
}

}  // namespace inferno::calls
