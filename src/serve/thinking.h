// Takes a model's thinking, "<think> ... </think>" at the beginning of its answer, apart from the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inferno::serve {

class ThinkingSplitter {
 public:
  struct Parts {
    std::string thinking = {};
    std::string content = {};
  };

  // is_open: the prompt ended with the opening tag, so that the answer begins within the thinking.
  explicit ThinkingSplitter(bool is_open = false)
      : was_open_(is_open), phase_(is_open ? Phase::thinking : Phase::beginning) {}

  // What is certain of the text so far and was not given out yet; the rest is held back until it is.
  [[nodiscard]] Parts push(std::string_view text);
  // The end: what was held back.
  [[nodiscard]] Parts finish();
  [[nodiscard]] bool was_open() const { return was_open_; }

 private:
  enum class Phase : uint8_t { beginning, thinking, gap, content };
  void look(Parts& parts);

  bool was_open_;
  Phase phase_;
  bool any_thinking_ = false;  // line ends before the first word of it are dropped
  std::string held_;
};

// Whether a prompt ends with the opening tag.
[[nodiscard]] bool ends_in_thinking(std::string_view prompt);

}  // namespace inferno::serve
