// A string that knows where each of its bytes came from.
//
// Text of the template itself, and of what the engine gives it (the text of bos), is *control*: it may become control
// tokens. Text of messages, tools and other input is not. Everything that makes strings from strings keeps the origin
// of every byte, so that concatenation, slices and filters cannot turn one into the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inferno::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool control) : bytes_(std::move(bytes)), first_control_(control) {}

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string_view view() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  // Of the byte at `offset`; past the end: of the last byte, and true when there is none.
  [[nodiscard]] bool is_control(size_t offset) const;
  // What it would cost to keep.
  [[nodiscard]] size_t footprint() const { return bytes_.size() + flips_.size() * sizeof(uint32_t) + sizeof(Text); }

  void append(std::string_view bytes, bool control);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);  // bytes [begin, end) of other
  [[nodiscard]] Text slice(size_t begin, size_t end) const;

  // f(bytes, control) for each stretch of one origin in [begin, end), in order.
  template <typename F>
  void each_run(size_t begin, size_t end, F f) const {
    size_t run = run_at(begin);
    while (begin < end) {
      const size_t limit = run < flips_.size() && flips_[run] < end ? flips_[run] : end;
      f(std::string_view(bytes_).substr(begin, limit - begin), first_control_ == (run % 2 == 0));
      begin = limit;
      ++run;
    }
  }

 private:
  [[nodiscard]] size_t run_at(size_t offset) const;  // index of the run that holds the byte

  std::string bytes_;
  bool first_control_ = true;    // origin of the first byte
  std::vector<uint32_t> flips_;  // ascending offsets, inside the text, where the origin changes
};

}  // namespace inferno::jinja
