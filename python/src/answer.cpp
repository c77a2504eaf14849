#include "answer.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "inferno/error.h"

namespace inferno::python {
namespace {

std::optional<calls::Parser> parser_for(std::string_view chat_template, const std::string& tools) {
  if (tools.empty()) return std::nullopt;
  auto list = std::make_shared<calls::ToolList>();
  try {
    for (const auto& tool : nlohmann::ordered_json::parse(tools)) {
      const auto& function = tool.at("function");
      calls::Tool made{.name = function.at("name").get<std::string>()};
      if (function.contains("parameters")) made.parameters = function.at("parameters");
      list->push_back(std::move(made));
    }
  } catch (const nlohmann::json::exception&) {
    throw Error(R"(a tool is {"type": "function", "function": {"name": ..., "parameters": ...}})");
  }
  return calls::Parser(calls::detect_format(chat_template), std::move(list));
}

}  // namespace

AnswerReader::AnswerReader(std::string_view prompt, std::string_view chat_template, const std::string& tools)
    : parser_(parser_for(chat_template, tools)), splitter_(prompt, [this](bool thinking, std::string_view text) {
        if (thinking) {
          piece_.reasoning += text;
        } else if (parser_) {
          add(parser_->push(text));
        } else {
          piece_.content += text;
        }
      }) {}

AnswerPiece AnswerReader::push(std::string_view text) {
  splitter_.push(text);
  return std::exchange(piece_, {});
}

AnswerPiece AnswerReader::finish() {
  splitter_.finish();
  if (parser_) add(parser_->finish());
  return std::exchange(piece_, {});
}

void AnswerReader::add(const std::vector<calls::Event>& events) {
  for (const calls::Event& event : events) {
    switch (event.kind) {
      case calls::EventKind::text:
        piece_.content += event.text;
        break;
      case calls::EventKind::thinking:
        piece_.reasoning += event.text;
        break;
      case calls::EventKind::call:
        piece_.calls.push_back({.index = calls_++, .name = event.text});
        break;
      case calls::EventKind::arguments:
        piece_.calls.push_back({.index = calls_ - 1, .arguments = event.text});
        break;
      case calls::EventKind::call_end:
        break;
    }
  }
}

}  // namespace inferno::python
