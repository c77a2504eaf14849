#include "hf/json.h"

#include <sys/stat.h>

#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace inferno::hf {
namespace {

[[noreturn]] void fail_syntax(const std::string& path, const nlohmann::detail::exception& error) {
  const std::string_view text = error.what();
  const size_t bracket = text.find("] ");  // "[json.exception.parse_error.101] parse error at ..."
  fail("\"{}\" is not valid JSON: {}", path,
       printable(bracket == std::string_view::npos ? text : text.substr(bracket + 2), 200));
}

// Keeps the path of where the parser is.
class Scanner {
 public:
  Scanner(const std::string& path, JsonVisitor& visitor) : file_(path), visitor_(visitor) {}

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(int64_t value) { return scalar(value); }
  bool number_unsigned(uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return scalar(value); }
  bool string(std::string& value) { return scalar(std::string_view(value)); }
  bool binary(std::vector<uint8_t>& /*value*/) { return false; }
  bool start_object(size_t /*size*/) { return enter(false); }
  bool start_array(size_t /*size*/) { return enter(true); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    steps_[depth_ - 1].key = name;
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    fail_syntax(file_, error);
  }

 private:
  [[nodiscard]] JsonPath here() const { return std::span(steps_).first(depth_); }
  bool scalar(const JsonScalar& value) {
    visitor_.value(here(), value);
    count();
    return true;
  }
  bool enter(bool array) {
    visitor_.begin(here());
    if (depth_ == kMaxJsonDepth) fail("\"{}\": values are nested more than {} deep", file_, kMaxJsonDepth);
    if (depth_ == steps_.size()) steps_.emplace_back();
    in_array_.push_back(array);
    steps_[depth_].key.clear();
    steps_[depth_].index = 0;
    steps_[depth_].is_item = array;
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    in_array_.pop_back();
    count();
    return true;
  }
  // One value of the enclosing array is done.
  void count() {
    if (depth_ > 0 && in_array_.back()) ++steps_[depth_ - 1].index;
  }

  const std::string& file_;
  JsonVisitor& visitor_;
  std::vector<JsonStep> steps_;
  std::vector<bool> in_array_;
  size_t depth_ = 0;
};

}  // namespace

std::string read_small_file(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    fail("\"{}\" has {}; at most {} are expected", path, format_bytes(file.size()), format_bytes(limit));
  }
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool file_exists(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0;
}

Json parse_json(std::string_view text, const std::string& path, const std::function<bool(std::string_view)>& keep) {
  size_t values = 0;
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (static_cast<size_t>(depth) > kMaxJsonDepth)
      fail("\"{}\": values are nested more than {} deep", path, kMaxJsonDepth);
    const bool is_key = event == Json::parse_event_t::key;
    if (is_key && depth == 1 && keep && !keep(parsed.get_ref<const std::string&>())) return false;
    const bool begins = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if ((begins || event == Json::parse_event_t::value) && ++values > kMaxTreeValues)
      fail("\"{}\": more than {} values; this is no such file of a model", path, kMaxTreeValues);
    return true;
  };
  try {
    Json parsed = Json::parse(text, callback);
    if (!parsed.is_object()) fail("\"{}\" must hold a JSON object", path);
    return parsed;
  } catch (const nlohmann::detail::exception& error) {
    fail_syntax(path, error);
  }
}

void scan_json(std::string_view text, const std::string& path, JsonVisitor& visitor) {
  Scanner scanner(path, visitor);
  try {
    Json::sax_parse(text, &scanner);
  } catch (const nlohmann::detail::exception& error) {
    fail_syntax(path, error);
  }
}

const uint64_t* as_uint(const JsonScalar& scalar) {
  return std::get_if<uint64_t>(&scalar);
}

const std::string_view* as_text(const JsonScalar& scalar) {
  return std::get_if<std::string_view>(&scalar);
}

}  // namespace inferno::hf
