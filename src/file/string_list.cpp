#include "file/string_list.h"

#include <cstring>

namespace inferno {

StringList::StringList(const std::vector<std::string>& strings) {
  size_t total = 0;
  for (const std::string& text : strings) total += text.size();
  reserve(strings.size(), total);
  for (const std::string& text : strings) append(text);
}

void StringList::reserve(size_t count, size_t text_bytes) {
  ends_.reserve(count);
  text_.reserve(text_bytes);
}

char* StringList::append(size_t length) {
  const size_t begin = text_.size();
  text_.resize(begin + length);
  ends_.push_back(begin + length);
  return text_.data() + begin;
}

void StringList::append(std::string_view text) {
  char* room = append(text.size());
  if (!text.empty()) std::memcpy(room, text.data(), text.size());
}

}  // namespace inferno
