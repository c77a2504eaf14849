#include "gguf/byte_reader.h"

#include "base/text.h"

namespace inferno {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

}  // namespace

ByteReader::ByteReader(const InputFile& file, uint64_t limit)
    : file_(&file), name_(file.path()), file_size_(file.size()), end_(std::min(file.size(), limit)) {}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string_view name, uint64_t limit)
    : name_(name),
      file_size_(bytes.size()),
      end_(std::min<uint64_t>(bytes.size(), limit)),
      buffer_(bytes.first(end_)) {}

void ByteReader::refill() {
  buffer_begin_ += cursor_;
  cursor_ = 0;
  storage_.resize(kBufferBytes);
  const auto room = std::span(storage_).first(std::min<uint64_t>(kBufferBytes, end_ - buffer_begin_));
  file_->read_at(buffer_begin_, room);
  buffer_ = room;
}

void ByteReader::read_bytes(std::span<std::byte> out) {
  if (out.size() > left()) fail_short(fmt::format("{} more bytes are needed", out.size()));
  while (!out.empty()) {
    if (cursor_ == buffer_.size()) {
      // Long runs go straight to their place.
      if (out.size() >= kBufferBytes) {
        buffer_begin_ += cursor_;
        cursor_ = 0;
        buffer_ = {};
        file_->read_at(buffer_begin_, out);
        buffer_begin_ += out.size();
        return;
      }
      refill();
    }
    const size_t count = std::min(out.size(), buffer_.size() - cursor_);
    std::memcpy(out.data(), buffer_.data() + cursor_, count);
    cursor_ += count;
    out = out.subspan(count);
  }
}

void ByteReader::skip(uint64_t count) {
  if (count > left()) fail_short(fmt::format("{} more bytes are needed", count));
  const size_t buffered = buffer_.size() - cursor_;
  if (count <= buffered) {
    cursor_ += count;
    return;
  }
  buffer_begin_ += cursor_ + count;
  cursor_ = 0;
  buffer_ = {};
}

void ByteReader::rewind(uint64_t position) {
  INFERNO_CHECK(position <= this->position());
  if (position >= buffer_begin_) {
    cursor_ = position - buffer_begin_;
    return;
  }
  buffer_begin_ = position;
  cursor_ = 0;
  buffer_ = {};
}

void ByteReader::require(uint64_t count, uint64_t item_bytes, std::string_view items) const {
  if (count <= left() / item_bytes) return;
  fail_short(fmt::format("{} {} are announced", count, items));
}

void ByteReader::fail_short(std::string_view problem) const {
  if (end_ == file_size_) {
    reject("{} but only {} bytes are left in the file", problem, left());
  } else {
    reject("{} but a file's head may not be longer than {}", problem, format_bytes(end_));
  }
}

void ByteReader::fail_here(const std::string& problem) const {
  fail("\"{}\" is not a valid GGUF file: {}{}{} (at byte {}); it may be incomplete: fetch or convert it again", name_,
       what_, what_.empty() ? "" : ": ", problem, position());
}

}  // namespace inferno
