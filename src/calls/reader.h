// Inside the parser: the coroutines that read an answer in one of the formats.
//
// Every byte that is taken is either given out in an event, accounted for (a marker, a key) or kept. What is kept is
// given back as text where a call turns out to be none, so nothing is lost.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calls/events.h"
#include "calls/format.h"
#include "calls/task.h"
#include "calls/tool.h"

namespace inferno::calls {

class Reader {
 public:
  Reader(const FormatSpec& format, std::shared_ptr<const ToolList> tools);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] std::vector<Event> push(std::string_view text);
  [[nodiscard]] std::vector<Event> finish();

 private:
  static constexpr size_t kMaxName = 256;  // bytes of a tool's name
  static constexpr int kMaxDepth = 64;     // of nested literals

  // Tasks give false where the text is not what they read.

  // ---- parts of all formats (reader.cpp)
  Task<bool> run();
  Task<bool> answer_with_markers();
  Task<bool> marked();
  // Passes text on up to one of the markers and takes it: which one, or -1 at the end of the text.
  Task<int> text_to(std::span<const std::string_view> markers);
  Task<bool> rest_is_text();
  // Takes the text. What fits of it is kept.
  Task<bool> literal(std::string_view text);
  // Takes one of two texts, of which none begins with the other: which, or -1.
  Task<int> either(std::string_view a, std::string_view b);
  Task<bool> space();
  // Letters, digits and -_.:/ into `name`.
  Task<bool> word(std::string* name);
  // Everything up to a marker, which is taken, too.
  Task<bool> until(std::string_view marker, std::string* text);
  char keep();
  void forget() { kept_.clear(); }
  void give_back();
  void begin_call(std::string_view name);

  // ---- calls as JSON (read_json.cpp)
  Task<bool> bare_objects();
  Task<bool> json_list();
  // {"name": ..., "arguments": ...}
  Task<bool> json_call();
  Task<bool> json_member();
  void end_json_call();
  // A name, a separator, and an object.
  Task<bool> named_call();
  // The arguments of a call that has begun: an object, or a string that holds one.
  Task<bool> call_arguments();
  // Any value as it is: into `text`, or to the arguments of the open call where it is null.
  Task<bool> value(std::string* text);
  Task<bool> scalar(std::string* text);
  Task<bool> quoted(std::string* text);
  Task<bool> json_string(std::string* decoded);
  void pass(std::string* text);

  // ---- tags (read_tags.cpp)
  Task<bool> tagged_calls();
  // After its opening tag.
  Task<bool> tagged_call();
  Task<bool> tagged_argument(std::string_view name);
  Task<bool> text_value(std::string_view close);
  [[nodiscard]] const TagNames& tags() const;
  [[nodiscard]] bool takes_text(std::string_view tool, std::string_view argument) const;

  // ---- literals that are rewritten as JSON (read_literals.cpp)
  Task<bool> pythonic_list();
  Task<bool> gemma_call();
  Task<bool> literal_value(std::string* json, int depth);
  Task<bool> literal_items(std::string* json, char close, int depth);
  Task<bool> literal_members(std::string* json, char equals, char close, int depth);
  Task<int> next_or_end(char close, bool is_first);
  Task<bool> literal_key(std::string* json);
  Task<bool> literal_word(std::string* json);
  Task<bool> python_string(std::string* json);
  [[nodiscard]] bool is_python() const { return format_.syntax == Syntax::pythonic; }

  // ---- messages of several channels (read_harmony.cpp)
  Task<bool> harmony();
  Task<bool> harmony_header(std::string* header);
  Task<bool> harmony_body(EventKind kind);

  const FormatSpec& format_;
  std::shared_ptr<const ToolList> tools_;
  ByteInput input_;
  EventList events_;
  std::string kept_;

  // Of the JSON object that is being read.
  std::string name_;
  std::string early_arguments_;  // that came before the name
  bool has_begun_ = false;

  std::optional<Task<bool>> run_;  // last: its frames use all the rest
};

}  // namespace inferno::calls
