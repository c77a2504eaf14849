#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail_usage("a stop string is empty; give it at least one character");
    // Text is whole characters; part of one would never be found, or leave half of one.
    if (!is_valid_utf8(stop)) fail_usage("the stop string \"{}\" is not valid UTF-8", printable(stop));
  }
}

bool TextStream::push(int32_t id) {
  fresh_begin_ = shown_;
  decoder_.push(id, text_);
  // A stop string may begin in text decoded earlier, but never in text already shown.
  size_t found = std::string::npos;
  for (const std::string& stop : stops_) found = std::min(found, text_.find(stop, shown_));
  if (found != std::string::npos) {
    text_.resize(found);
    shown_ = found;
    return false;
  }
  shown_ = text_.size() - held_back();
  return true;
}

void TextStream::finish() {
  fresh_begin_ = shown_;
  decoder_.finish(text_);
  shown_ = text_.size();
}

size_t TextStream::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, text_.size() - shown_); n > longest; --n) {
      if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  // Hold back whole characters only.
  while (longest > 0 && longest < text_.size() - shown_ &&
         (static_cast<unsigned char>(text_[text_.size() - longest]) & 0xC0) == 0x80) {
    ++longest;
  }
  return longest;
}

}  // namespace inferno
