#include "hf/json.h"

#include <sys/stat.h>

#include <utility>
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

void check_tokens(std::string_view text, const std::string& path) {
  size_t length = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
      length = 0;
    } else if (in_string) {
      ++length;
      if (c == '\\') ++i;
    } else {
      const bool is_number = (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
      length = is_number ? length + 1 : 0;
    }
    if (length > kMaxJsonToken) fail("\"{}\": a string or number of more than {}", path, format_bytes(kMaxJsonToken));
  }
}

// What the parser calls, of which all values but arrays and objects go to scalar() of the class that derives from this.
template <class Derived>
class Events {
 public:
  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(int64_t value) { return scalar(value); }
  bool number_unsigned(uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return scalar(value); }
  bool string(std::string& value) { return scalar(std::string_view(value)); }
  bool binary(std::vector<uint8_t>& /*value*/) { return false; }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    fail_syntax(file_, error);
  }

 private:
  friend Derived;
  explicit Events(const std::string& file) : file_(file) {}
  template <class T>
  bool scalar(const T& value) {
    return static_cast<Derived*>(this)->scalar(value);
  }

  const std::string& file_;  // what messages call the text
};

// Keeps the path of where the parser is.
class Scanner : public Events<Scanner> {
 public:
  Scanner(const std::string& path, JsonVisitor& visitor) : Events(path), visitor_(visitor) {}

  bool start_object(size_t /*size*/) { return enter(false); }
  bool start_array(size_t /*size*/) { return enter(true); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    steps_[depth_ - 1].key = name;
    return true;
  }

 private:
  friend Events;

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

  JsonVisitor& visitor_;
  std::vector<JsonStep> steps_;
  std::vector<bool> in_array_;
  size_t depth_ = 0;
};

// Builds the tree. Json::parse() with a callback could do the same, but looks through an array again after each of its
// objects.
class Builder : public Events<Builder> {
 public:
  Builder(const std::string& path, const std::function<bool(std::string_view)>& keep) : Events(path), keep_(keep) {}

  [[nodiscard]] Json& root() { return root_; }

  bool start_object(size_t /*size*/) { return enter(Json::object()); }
  bool start_array(size_t /*size*/) { return enter(Json::array()); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    if (depth_ == 1) unwanted_ = keep_ && !keep_(name);
    if (!unwanted_) key_ = name;
    return true;
  }

 private:
  friend Events;

  bool scalar(Json value) {
    if (!unwanted_) put(std::move(value));
    return true;
  }
  bool enter(Json container) {
    if (depth_ == kMaxJsonDepth) fail("\"{}\": values are nested more than {} deep", file_, kMaxJsonDepth);
    ++depth_;
    if (!unwanted_) open_.push_back(&put(std::move(container)));
    return true;
  }
  bool leave() {
    --depth_;
    if (!unwanted_) open_.pop_back();
    return true;
  }
  // Into the innermost container: the ones around it do not change, nor does where they are.
  Json& put(Json value) {
    if (++values_ > kMaxTreeValues)
      fail("\"{}\": more than {} values; this is no such file of a model", file_, kMaxTreeValues);
    if (open_.empty()) return root_ = std::move(value);
    Json& in = *open_.back();
    if (in.is_object()) return in[key_] = std::move(value);
    in.push_back(std::move(value));
    return in.back();
  }

  const std::function<bool(std::string_view)>& keep_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  size_t depth_ = 0;
  size_t values_ = 0;
  bool unwanted_ = false;  // the member of the outermost object that is read
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
  check_tokens(text, path);
  Builder builder(path, keep);
  try {
    Json::sax_parse(text, &builder);
    if (!builder.root().is_object()) fail("\"{}\" must hold a JSON object", path);
    return std::move(builder.root());
  } catch (const nlohmann::detail::exception& error) {
    fail_syntax(path, error);
  }
}

void scan_json(std::string_view text, const std::string& path, JsonVisitor& visitor) {
  check_tokens(text, path);
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
