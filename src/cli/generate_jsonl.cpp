#include "cli/generate_jsonl.h"

#include <csignal>
#include <deque>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/constraint_flags.h"
#include "cli/signals.h"

namespace inferno::cli {
namespace {

using nlohmann::ordered_json;

template <typename T>
void read(const ordered_json& line, const char* key, T& value) {
  if (!line.contains(key)) return;
  const ordered_json& given = line[key];
  const bool fits = std::is_integral_v<T> ? given.is_number_integer() : given.is_number();
  if (!fits) fail_usage("\"{}\" is not a {}number", key, std::is_integral_v<T> ? "whole " : "");
  if constexpr (std::is_integral_v<T>) {
    if (!given.is_number_unsigned() && given.get<int64_t>() < (std::is_signed_v<T> ? -1 : 0)) {
      fail_usage("\"{}\" is {}", key, given.get<int64_t>());
    }
    if (given.is_number_unsigned() && given.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      fail_usage("\"{}\" is {}", key, given.get<uint64_t>());
    }
  }
  value = given.get<T>();
}

std::string text_of(const ordered_json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) fail_usage("there is no \"{}\"", key);
  return object[key].get<std::string>();
}

Prompt prompt_of(const ordered_json& line, const JsonLines& how) {
  const int given = static_cast<int>(line.contains("prompt")) + static_cast<int>(line.contains("messages")) +
                    static_cast<int>(line.contains("ids"));
  if (given != 1) fail_usage("one of \"prompt\", \"messages\" and \"ids\" is needed");
  const ChatOptions chat{.chat_template = how.chat_template};
  if (line.contains("prompt")) {
    std::string text = text_of(line, "prompt");
    if (how.chat) return Prompt({{.role = "user", .content = std::move(text)}}, chat);
    return text;
  }
  const ordered_json& list = line.contains("ids") ? line["ids"] : line["messages"];
  if (!list.is_array()) fail_usage("\"ids\" and \"messages\" are arrays");
  if (line.contains("ids")) {
    std::vector<int32_t> ids;
    for (const ordered_json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
        fail_usage("\"ids\" holds no token id: {}", printable(id.dump(), 40));
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  std::vector<ChatMessage> messages;
  for (const ordered_json& one : list)
    messages.push_back({.role = text_of(one, "role"), .content = text_of(one, "content")});
  return {std::move(messages), chat};
}

GenerateOptions options_of(const ordered_json& line, GenerateOptions options) {
  SamplingSettings& sampling = options.sampling;
  read(line, "n", options.max_new_tokens);
  read(line, "seed", sampling.seed);
  read(line, "temp", sampling.temperature);
  read(line, "top_k", sampling.top_k);
  read(line, "top_p", sampling.top_p);
  read(line, "min_p", sampling.min_p);
  options.constraint = constraint_of(line, options.constraint);
  if (line.contains("stop")) options.stop = {text_of(line, "stop")};
  return options;
}

// A line that was read, and what became of it.
struct Pending {
  ordered_json head;  // "index", and "id" where the line has one
  uint64_t seed = 0;
  bool draws = false;
  std::variant<Generation, std::string> work;  // or why there is none
};

Pending start(Llm& llm, int64_t index, const std::string& text, const GenerateOptions& common, const JsonLines& how) {
  ordered_json head = {{"index", index}};
  try {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (!line.is_object()) fail_usage("the line is not an object in JSON");
    if (line.contains("id")) head["id"] = line["id"];
    const GenerateOptions options = options_of(line, common);
    return {std::move(head), options.sampling.seed, options.sampling.temperature > 0,
            llm.submit(prompt_of(line, how), options)};
  } catch (const Error& error) {
    return {std::move(head), 0, false, std::string(error.what())};
  }
}

// Returns whether there was a text.
bool finish(Pending& pending) {
  ordered_json out = std::move(pending.head);
  try {
    if (const auto* error = std::get_if<std::string>(&pending.work)) throw Error(*error);
    const GenerateResult result = std::get<Generation>(pending.work).result();
    out["text"] = result.text();
    out["stop_reason"] = to_string(result.reason());
    if (pending.draws) out["seed"] = pending.seed;
    out["prompt_tokens"] = result.metrics.prompt_tokens;
    out["reused_tokens"] = result.metrics.reused_tokens;
    out["generated_tokens"] = result.metrics.generated_tokens;
  } catch (const Error& error) {
    out["error"] = error.what();
  }
  write_stdout(out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  flush_stdout();
  return !out.contains("error");
}

}  // namespace

void generate_lines(Llm& llm, const std::string& file, const GenerateOptions& options, const JsonLines& how) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file);
    if (!opened) fail("cannot open \"{}\"", printable(file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  const InterruptGuard guard(llm);
  std::deque<Pending> pending;
  bool all_well = true;
  bool interrupted = false;
  const auto finish_first = [&] {
    all_well = finish(pending.front()) && all_well;
    pending.pop_front();
    interrupted = interrupted || take_interrupt();
  };
  int64_t index = 0;
  for (std::string line; !interrupted && std::getline(in, line);) {
    if (trim(line).empty()) continue;
    pending.push_back(start(llm, index++, line, options, how));
    if (pending.size() >= static_cast<size_t>(how.at_once)) finish_first();
  }
  while (!pending.empty() && !interrupted) finish_first();
  if (interrupted) throw Exit{.signal = SIGINT};
  if (!all_well) throw Exit{.code = 1};
}

}  // namespace inferno::cli
