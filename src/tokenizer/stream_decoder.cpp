#include "tokenizer/stream_decoder.h"

#include "base/text.h"

namespace inferno {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// True when some bytes could follow to make these one UTF-8 sequence.
bool is_sequence_prefix(std::string_view bytes) {
  // The range of what may follow has no gaps: trying the lowest and the highest continuation finds any completion.
  for (const char fill : {'\x80', '\xBF'}) {
    std::string completed(bytes);
    while (completed.size() < 4) {
      completed.push_back(fill);
      if (utf8_sequence_length(completed) == completed.size()) return true;
    }
  }
  return false;
}

}  // namespace

void StreamDecoder::push_bytes(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    pending_[pending_size_++] = byte;
    std::string_view pending(pending_.data(), pending_size_);
    if (utf8_sequence_length(pending) == pending_size_) {
      out += pending;
      pending_size_ = 0;
    } else if (!is_sequence_prefix(pending)) {
      // The bytes before this one were a prefix: they are one mistake. This one may begin anew.
      out += kReplacement;
      const bool restart = pending_size_ > 1;
      pending_size_ = 0;
      if (restart) push_bytes(std::string_view(&byte, 1), out);
    }
  }
}

void StreamDecoder::finish(std::string& out) {
  if (pending_size_ > 0) out += kReplacement;
  pending_size_ = 0;
}

}  // namespace inferno
