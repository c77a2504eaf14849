#include "engine/answer_reader.h"

#include <utility>

#include "calls/parser.h"
#include "engine/reasoning.h"

namespace inferno {

struct AnswerReader::Impl {
  explicit Impl(AnswerForm answer)
      : form(std::move(answer)), splitter(form.prompt_end, [this](bool thinking, std::string_view text) {
          thinking ? think(text) : say(text);
        }) {
    if (form.calls) parser.emplace(*form.calls, form.tools);
    // gpt-oss: channels are part of the format of calls.
    splits = form.reasoning && form.calls != calls::Format::harmony;
    message.role = "assistant";
  }

  void push(std::string_view text) {
    if (splits) {
      splitter.push(text);
    } else {
      say(text);
    }
  }
  void finish() {
    if (splits) splitter.finish();
    if (parser) add(parser->finish());
  }
  void think(std::string_view text) {
    piece.reasoning += text;
    message.reasoning_content += text;
  }
  void say(std::string_view text) {
    if (parser) {
      add(parser->push(text));
    } else {
      add_content(text);
    }
  }
  void add_content(std::string_view text) {
    piece.content += text;
    message.content += text;
  }
  void add(const std::vector<calls::Event>& events) {
    for (const calls::Event& event : events) add(event);
  }
  void add(const calls::Event& event) {
    std::vector<ToolCall>& made = message.tool_calls;
    switch (event.kind) {
      case calls::EventKind::text:
        return add_content(event.text);
      case calls::EventKind::thinking:
        return think(event.text);
      case calls::EventKind::call:
        made.push_back({.id = call_id(form.id_seed, made.size()), .name = event.text});
        piece.calls.push_back({.index = made.size() - 1, .id = made.back().id, .name = event.text});
        return;
      case calls::EventKind::arguments:
        if (piece.calls.empty()) piece.calls.push_back({.index = made.size() - 1});
        piece.calls.back().arguments += event.text;
        made.back().arguments += event.text;
        return;
      case calls::EventKind::call_end:
        return;
    }
  }

  AnswerForm form;
  ReasoningSplitter splitter;
  std::optional<calls::Parser> parser;
  bool splits = false;
  ChatMessage message;
  AnswerPiece piece;  // what was not given out yet
};

AnswerReader::AnswerReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&& other) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&& other) noexcept = default;

AnswerPiece AnswerReader::push(std::string_view text) {
  impl_->push(text);
  return std::exchange(impl_->piece, {});
}

AnswerPiece AnswerReader::finish() {
  impl_->finish();
  return std::exchange(impl_->piece, {});
}

const ChatMessage& AnswerReader::message() const {
  return impl_->message;
}

AnswerReader read_answer(AnswerForm form) {
  return AnswerReader(std::make_unique<AnswerReader::Impl>(std::move(form)));
}

std::string call_id(uint64_t seed, size_t index) {
  constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
  // splitmix64: neighbours have nothing in common.
  uint64_t mixed = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  mixed ^= mixed >> 31;
  std::string id;
  for (; id.size() < 9; mixed /= kDigits.size()) id += kDigits[mixed % kDigits.size()];
  return id;
}

}  // namespace inferno
