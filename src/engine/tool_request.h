// What a conversation says about tools, and what that means for its answer.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "calls/call_rules.h"
#include "calls/tool.h"
#include "engine/answer_reader.h"
#include "inferno/types.h"

namespace inferno {

class Tokenizer;

inline constexpr size_t kMaxTools = 512;
inline constexpr size_t kMaxToolName = 128;

struct ToolRequest {
  std::shared_ptr<const calls::ToolList> tools;  // null: there are none, or none may be called
  std::string json;                              // the same for a chat template, in OpenAI's form
  bool required = false;                         // the answer is a call
  std::string name;                              // of this tool; empty: of any
  bool parallel = true;                          // of several, if the model likes

  [[nodiscard]] bool empty() const { return tools == nullptr; }
};

// Something is wrong with a tool: `path` says which part ("tools[0].function.name").
class ToolError : public Error {
 public:
  ToolError(std::string path, const std::string& problem)
      : Error("`" + path + "` " + problem, Kind::usage), path_(std::move(path)), problem_(problem) {}
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::string path_, problem_;
};

// An array of tools in the form of OpenAI's or Anthropic's API: sets `tools` and `json`. None: nothing is set.
void read_tools(const nlohmann::ordered_json& given, ToolRequest& request);
// A ToolError where `required` and `name` ask for what is not there.
void check_choice(const ToolRequest& request);

// What ChatOptions say.
[[nodiscard]] ToolRequest tool_request(const ChatOptions& options);
// The same without what the template is not to be shown: tools of which none may be called, and thinking before a call
// that is required.
[[nodiscard]] ChatOptions shown_options(ChatOptions options);

// How an answer with this prompt is written and to be read. The template (as in ChatOptions) shows the format.
[[nodiscard]] AnswerForm answer_form(const Tokenizer& tokenizer, std::string_view chat_template,
                                     const ToolRequest& request, bool reasoning, std::span<const int32_t> prompt);
// The grammar of such an answer; empty: it has none, because there are no tools.
[[nodiscard]] std::optional<calls::CallForm> call_form(const AnswerForm& form, const ToolRequest& request);

}  // namespace inferno
