// Forward reading of the head of a GGUF file, from disk through a small buffer or from memory.
//
// Every read is checked against the bytes that are left; an error names the file, the position and what was being read
// (describe()).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace inferno {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as the machine's own numbers");

class ByteReader {
 public:
  // The file or the bytes must outlive the reader. Nothing at or after byte `limit` is read: the head of a real file
  // is small, whatever the size of the file.
  ByteReader(const InputFile& file, uint64_t limit);
  ByteReader(std::span<const std::byte> bytes, std::string_view name, uint64_t limit);

  [[nodiscard]] uint64_t position() const { return buffer_begin_ + cursor_; }
  [[nodiscard]] uint64_t file_size() const { return file_size_; }
  // Bytes that may still be read.
  [[nodiscard]] uint64_t left() const { return end_ - position(); }

  // What the following reads are about, for messages: `tensor 3 of 7`.
  void describe(std::string what) { what_ = std::move(what); }

  template <typename T>
  T read() {
    T value;
    read_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void read_bytes(std::span<std::byte> out);
  void skip(uint64_t count);
  // Goes back to a position that has been passed.
  void rewind(uint64_t position);
  // An Error unless `count` items of at least `item_bytes` each can still follow. Call before allocating.
  void require(uint64_t count, uint64_t item_bytes, std::string_view items) const;

  // The file breaks the format.
  template <typename... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) const {
    fail_here(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void fail_here(const std::string& problem) const;
  [[noreturn]] void fail_short(std::string_view problem) const;
  void refill();

  const InputFile* file_ = nullptr;
  std::string_view name_;
  uint64_t file_size_ = 0;
  uint64_t end_ = 0;  // min(file size, limit)
  std::vector<std::byte> storage_;
  std::span<const std::byte> buffer_;
  uint64_t buffer_begin_ = 0;  // position of buffer_[0]
  size_t cursor_ = 0;          // next byte in buffer_
  std::string what_;
};

}  // namespace inferno
