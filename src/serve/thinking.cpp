#include "serve/thinking.h"

#include <algorithm>

#include "base/text.h"

namespace inferno::serve {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

// Length of the longest end of text that begins `tag`, or is white space before it.
size_t held_length(std::string_view text, std::string_view tag) {
  const size_t most = std::min(text.size(), tag.size() - 1);
  size_t length = 0;
  for (size_t n = most; n > 0 && length == 0; --n) {
    if (text.ends_with(tag.substr(0, n))) length = n;
  }
  const size_t last = text.substr(0, text.size() - length).find_last_not_of(" \n");
  return text.size() - (last == std::string_view::npos ? 0 : last + 1);
}

void drop_line_ends(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of("\r\n"), text.size()));
}

}  // namespace

ThinkingSplitter::Parts ThinkingSplitter::push(std::string_view text) {
  held_ += text;
  Parts parts;
  look(parts);
  return parts;
}

void ThinkingSplitter::look(Parts& parts) {
  if (phase_ == Phase::beginning) {
    const size_t first = std::min(held_.find_first_not_of(" \r\n"), held_.size());
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return;
    const bool opens = rest.starts_with(kOpen);
    if (opens) held_.erase(0, first + kOpen.size());
    phase_ = opens ? Phase::thinking : Phase::content;
  }
  if (phase_ == Phase::thinking) {
    if (!any_thinking_) drop_line_ends(held_);
    const size_t end = held_.find(kClose);
    const size_t certain = end == std::string::npos ? held_.size() - held_length(held_, kClose)
                                                    : held_.find_last_not_of(" \n", end == 0 ? 0 : end - 1) + 1;
    parts.thinking = held_.substr(0, std::min(certain, end));
    any_thinking_ = any_thinking_ || !parts.thinking.empty();
    held_.erase(0, end == std::string::npos ? parts.thinking.size() : end + kClose.size());
    if (end == std::string::npos) return;
    phase_ = Phase::gap;
  }
  if (phase_ == Phase::gap) {
    drop_line_ends(held_);
    if (held_.empty()) return;
    phase_ = Phase::content;
  }
  parts.content = std::move(held_);
  held_.clear();
}

ThinkingSplitter::Parts ThinkingSplitter::finish() {
  Parts parts;
  if (phase_ == Phase::thinking) {
    parts.thinking = std::move(held_);
  } else if (phase_ != Phase::gap) {
    parts.content = std::move(held_);
  }
  held_.clear();
  return parts;
}

bool ends_in_thinking(std::string_view prompt) {
  return trim(prompt).ends_with(kOpen);
}

}  // namespace inferno::serve
