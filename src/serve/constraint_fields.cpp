#include "serve/constraint_fields.h"

#include <array>
#include <vector>

#include "base/json_limits.h"
#include "base/text.h"
#include "grammar/limits.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

class Reader {
 public:
  Reader(const Fields& fields, std::string_view body) : fields_(fields), body_(body) {}

  ConstraintField run() {
    response_format();
    text_format();
    ollama_format();
    for (const char* name : {"json_schema", "guided_json"}) schema(fields_, name, {name});
    for (const char* name : {"grammar", "guided_grammar"}) text(fields_, name, &Constraint::grammar);
    for (const char* name : {"regex", "guided_regex"}) text(fields_, name, &Constraint::regex);
    for (const char* name : {"choice", "guided_choice"}) choice(fields_, name);
    structured_outputs();
    return std::move(found_);
  }

 private:
  using Path = std::vector<const char*>;

  Constraint& take(const std::string& field) {
    if (!found_.field.empty()) {
      fail_field(field, "and `{}` cannot both be given", found_.field);
    }
    found_.field = field;
    return found_.constraint;
  }

  // OpenAI's chat: {"type": "json_schema", "json_schema": {"schema": {...}}}; llama-server has the schema beside the
  // type.
  void response_format() {
    const Json* format = fields_.object("response_format");
    if (format == nullptr) return;
    const Fields inside(*format, "response_format.");
    const std::string& type = type_of(inside);
    if (type == "text") return;
    if (inside.object("schema") != nullptr) return schema(inside, "schema", {"response_format", "schema"});
    if (type == "json_object") {
      take("response_format").json_schema = kAnyObject;
      return;
    }
    const Json* named = inside.object("json_schema");
    if (named == nullptr) fail_field("response_format.json_schema", "is missing");
    const Fields of_schema(*named, "response_format.json_schema.");
    if (of_schema.find("schema") == nullptr) fail_field("response_format.json_schema.schema", "is missing");
    schema(of_schema, "schema", {"response_format", "json_schema", "schema"});
  }

  // OpenAI's responses.
  void text_format() {
    const Json* text = fields_.find("text");
    if (text == nullptr || !text->is_object()) return;
    const Json* format = Fields(*text, "text.").object("format");
    if (format == nullptr) return;
    const Fields inside(*format, "text.format.");
    const std::string& type = type_of(inside);
    if (type == "text") return;
    if (type == "json_object") {
      take("text.format").json_schema = kAnyObject;
      return;
    }
    if (inside.find("schema") == nullptr) fail_field("text.format.schema", "is missing");
    schema(inside, "schema", {"text", "format", "schema"});
  }

  static const std::string& type_of(const Fields& format) {
    const std::string* type = format.string("type");
    if (type == nullptr) fail_field(format.path("type"), "is missing");
    if (*type != "text" && *type != "json_object" && *type != "json_schema") {
      fail_field(format.path("type"), "is \"{}\", must be text, json_object or json_schema", printable(*type));
    }
    return *type;
  }

  void ollama_format() {
    const Json* format = fields_.find("format");
    if (format == nullptr || (format->is_string() && format->get_ref<const std::string&>().empty())) return;
    if (*format == "json") {
      take("format").json_schema = kAnyObject;
    } else if (format->is_object()) {
      schema(fields_, "format", {"format"});
    } else {
      fail_field("format", "must be \"json\" or a JSON schema");
    }
  }

  void structured_outputs() {
    const Json* outputs = fields_.object("structured_outputs");
    if (outputs == nullptr) return;
    const Fields inside(*outputs, "structured_outputs.");
    schema(inside, "json", {"structured_outputs", "json"});
    text(inside, "grammar", &Constraint::grammar);
    text(inside, "regex", &Constraint::regex);
    choice(inside, "choice");
    if (inside.boolean("json_object").value_or(false)) take("structured_outputs.json_object").json_schema = kAnyObject;
    if (inside.find("structural_tag") != nullptr) fail_unsupported("structured_outputs.structural_tag");
  }

  // An object, true or false, or its text. The order of its members is that of the body.
  void schema(const Fields& fields, const char* name, const Path& path) {
    const Json* given = fields.find(name);
    if (given == nullptr) return;
    if (given->is_string()) {
      if (given->get_ref<const std::string&>().empty())
        fail_field(fields.path(name), "is empty, must be a JSON schema");
      take(fields.path(name)).json_schema = given->get<std::string>();
      return;
    }
    if (!given->is_object() && !given->is_boolean()) {
      fail_field(fields.path(name), "is {}, must be a JSON schema", kind_of(*given));
    }
    take(fields.path(name)).json_schema = ordered_text(path);
  }

  [[nodiscard]] std::string ordered_text(const Path& path) const {
    const grammar::Limits limits;
    const std::string fault =
        json_fault(body_, {.depth = kMaxJsonDepth, .values = kMaxJsonValues, .members = limits.json_members});
    if (!fault.empty()) throw ApiError(400, fmt::format("the body {}", fault));
    try {
      const nlohmann::ordered_json ordered = nlohmann::ordered_json::parse(body_);
      const nlohmann::ordered_json* at = &ordered;
      for (const char* key : path) at = &at->at(key);
      return at->dump();
    } catch (const nlohmann::ordered_json::exception&) {
      // A field that is there twice, with different contents.
      fail_field(path.front(), "is not clear");
    }
  }

  void text(const Fields& fields, const char* name, std::string Constraint::* member) {
    const std::string* given = fields.string(name);
    if (given == nullptr || given->empty()) return;
    take(fields.path(name)).*member = *given;
  }

  void choice(const Fields& fields, const char* name) {
    const Json* given = fields.array(name);
    if (given == nullptr) return;
    if (given->empty()) fail_field(fields.path(name), "is empty, must have at least one text");
    Constraint& constraint = take(fields.path(name));
    for (const Json& one : *given) {
      if (!one.is_string()) fail_field(fields.path(name), "holds {}, must hold strings", kind_of(one));
      constraint.choice.push_back(one.get<std::string>());
    }
  }

  const Fields& fields_;
  std::string_view body_;
  ConstraintField found_;
};

}  // namespace

ConstraintField constraint_of(const Fields& fields, std::string_view body) {
  return Reader(fields, body).run();
}

}  // namespace inferno::serve
