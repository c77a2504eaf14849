#include "template/text.h"

#include <algorithm>

namespace inferno::jinja {

size_t Text::run_at(size_t offset) const {
  if (flips_.empty()) return 0;
  return static_cast<size_t>(std::upper_bound(flips_.begin(), flips_.end(), offset) - flips_.begin());
}

bool Text::is_control(size_t offset) const {
  if (bytes_.empty()) return true;
  return first_control_ == (run_at(std::min(offset, bytes_.size() - 1)) % 2 == 0);
}

void Text::append(std::string_view bytes, bool control) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_control_ = control;
  } else if (control != (first_control_ == (flips_.size() % 2 == 0))) {
    flips_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other, size_t begin, size_t end) {
  other.each_run(begin, end, [this](std::string_view bytes, bool control) { append(bytes, control); });
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace inferno::jinja
