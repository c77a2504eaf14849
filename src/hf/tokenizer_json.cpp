#include "hf/tokenizer_json.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace inferno::hf {
namespace {

class Reader final : public JsonVisitor {
 public:
  Reader(const std::string& path, TokenizerJson& out) : path_(path), out_(out) {}

  void value(JsonPath path, const JsonScalar& scalar) override {
    if (path.size() < 2) return;
    if (path[0].key == "added_tokens") return read_added(path, scalar);
    if (path[0].key != "model") return;
    if (path.size() == 2) return read_setting(path[1].key, scalar);
    if (path[1].key == "vocab") return read_token(path, scalar);
    if (path[1].key == "merges") return read_merge(path, scalar);
  }

  void finish() {
    if (has_left_) reject("a merge has one part");
    for (const AddedToken& token : out_.added) {
      if (token.content.empty()) reject("an added token lacks its content");
      if (token.id >= kMaxTokens) reject("the id of an added token is far too large");
    }
  }

 private:
  [[noreturn]] void reject(std::string_view problem) const {
    fail("\"{}\" is not a tokenizer that can be read: {}", path_, problem);
  }

  void read_setting(std::string_view key, const JsonScalar& scalar) {
    const std::string_view* text = as_text(scalar);
    const bool* flag = std::get_if<bool>(&scalar);
    if (key == "type" && text != nullptr) out_.model = *text;
    if (key == "unk_token" && text != nullptr) out_.unknown = *text;
    if (key == "byte_fallback" && flag != nullptr) out_.byte_fallback = *flag;
    if (key == "ignore_merges" && flag != nullptr) out_.ignore_merges = *flag;
  }

  void read_token(JsonPath path, const JsonScalar& scalar) {
    const uint64_t* id = as_uint(scalar);
    if (path.size() != 3 || path[2].is_item || id == nullptr)
      reject("\"vocab\" must give each token its id (only BPE and WordPiece are read)");
    if (*id >= kMaxTokens || out_.ids.size() == kMaxTokens) reject("it has far too many tokens");
    out_.tokens.append(path[2].key);
    out_.ids.push_back(static_cast<uint32_t>(*id));
  }

  // "left right" or ["left", "right"]
  void read_merge(JsonPath path, const JsonScalar& scalar) {
    const std::string_view* text = as_text(scalar);
    if (text == nullptr || path.size() > 4 || !path.back().is_item)
      reject("\"merges\" must be strings or pairs of them");
    if (out_.merges.size() == kMaxMerges) reject("it has far too many merges");
    if (path.size() == 3) {
      const size_t space = text->find(' ');
      if (space == std::string_view::npos) reject("a merge has one part");
      check_part(text->substr(0, space));
      check_part(text->substr(space + 1));
      out_.merges.append(*text);
      return;
    }
    if (path[3].index > 1 || (path[3].index == 1) != has_left_) reject("a merge does not have two parts");
    check_part(*text);
    if (!has_left_) {
      left_ = *text;
      has_left_ = true;
      return;
    }
    char* room = out_.merges.append(left_.size() + 1 + text->size());
    room = std::ranges::copy(left_, room).out;
    *room++ = ' ';
    std::ranges::copy(*text, room);
    has_left_ = false;
  }

  // Parts are joined by a space in GGUF files: none may have one.
  void check_part(std::string_view part) const {
    if (part.empty() || part.find(' ') != std::string_view::npos) reject("a part of a merge is empty or has a space");
  }

  void read_added(JsonPath path, const JsonScalar& scalar) {
    if (path.size() != 3) return;
    if (path[1].index >= out_.added.size()) {
      if (path[1].index >= kMaxAddedTokens) reject("it has far too many added tokens");
      out_.added.resize(path[1].index + 1);
    }
    AddedToken& token = out_.added[path[1].index];
    const std::string& key = path[2].key;
    if (key == "content" && as_text(scalar) != nullptr) token.content = *as_text(scalar);
    if (key == "special" && std::holds_alternative<bool>(scalar)) token.special = std::get<bool>(scalar);
    if (key != "id") return;
    if (as_uint(scalar) == nullptr || *as_uint(scalar) >= kMaxTokens) reject("the id of an added token is no id");
    token.id = static_cast<uint32_t>(*as_uint(scalar));
  }

  const std::string& path_;
  TokenizerJson& out_;
  std::string left_;
  bool has_left_ = false;
};

// Texts of patterns as tokenizer.json files have them, and what GGUF files call them.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct PreName {
  std::string_view patterns;  // joined by a newline; "digits": every digit apart
  bool nfc;
  bool ignore_merges;
  std::string_view name;
};
constexpr PreName kPreNames[] = {
    {kGpt2Pattern, false, false, "gpt-2"},      {"digits\n", false, false, "smollm"},
    {kLlama3Pattern, false, true, "llama-bpe"}, {kLlama3Pattern, false, false, "dbrx"},
    {kQwen2Pattern, true, false, "qwen2"},      {kQwen2Pattern, false, false, "deepseek-r1-qwen"},
    {kQwen35Pattern, true, false, "qwen35"},    {kGpt4oPattern, false, false, "gpt-4o"},
    {kTekkenPattern, false, true, "tekken"},
};

std::string text_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

bool flag_of(const Json& object, const char* key, bool otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() ? at->get<bool>() : otherwise;
}

// The parts of a component that may be a sequence of them, in order. Trees are at most kMaxJsonDepth deep.
void list_parts(const Json& component, const char* list, std::vector<const Json*>& parts) {
  if (!component.is_object()) return;
  const auto at = component.find(list);
  if (text_of(component, "type") != "Sequence" || at == component.end() || !at->is_array()) {
    parts.push_back(&component);
    return;
  }
  for (const Json& part : *at) list_parts(part, list, parts);
}

std::vector<const Json*> parts_of(const Json& rest, const char* key, const char* list) {
  std::vector<const Json*> parts;
  if (const auto at = rest.find(key); at != rest.end()) list_parts(*at, list, parts);
  return parts;
}

// Two ways to write the same.
std::string usual_form(std::string pattern) {
  constexpr std::string_view kOther = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
  for (size_t at = pattern.find(kOther); at != std::string_view::npos; at = pattern.find(kOther, at + 1))
    pattern.replace(at, kOther.size(), "(?i:'s|'t|'re|'ve|'m|'ll|'d)");
  return pattern;
}

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& path) {
  TokenizerJson tokenizer;
  Reader reader(path, tokenizer);
  scan_json(text, path, reader);
  reader.finish();
  tokenizer.rest = parse_json(text, path, [](std::string_view key) {
    return key == "normalizer" || key == "pre_tokenizer" || key == "post_processor";
  });
  if (tokenizer.model.empty() && !tokenizer.merges.empty()) tokenizer.model = "BPE";  // older files do not say
  if (tokenizer.model != "BPE" && tokenizer.model != "WordPiece") {
    fail("\"{}\": tokenizers of type \"{}\" are not read from folders (read: BPE, WordPiece)", path,
         printable(tokenizer.model));
  }
  return tokenizer;
}

std::string_view pre_tokenizer_name(const TokenizerJson& tokenizer, const std::string& path) {
  std::string patterns;
  for (const Json* part : parts_of(tokenizer.rest, "pre_tokenizer", "pretokenizers")) {
    const std::string type = text_of(*part, "type");
    if (type == "Split") {
      const auto pattern = part->find("pattern");
      const bool is_regex = pattern != part->end() && pattern->is_object();
      if (!patterns.empty()) patterns += '\n';
      patterns += usual_form(is_regex ? text_of(*pattern, "Regex") : "?");
    } else if (type == "Digits") {
      patterns += flag_of(*part, "individual_digits", false) ? "digits\n" : "?";
    } else if (type == "ByteLevel") {
      if (flag_of(*part, "use_regex", true) && patterns.find(kGpt2Pattern) == std::string::npos)
        patterns += patterns == "digits\n" ? "" : kGpt2Pattern;
    } else {
      patterns += "?";
    }
  }
  bool nfc = false;
  for (const Json* part : parts_of(tokenizer.rest, "normalizer", "normalizers"))
    nfc = nfc || text_of(*part, "type") == "NFC";
  for (const PreName& known : kPreNames) {
    if (known.patterns == patterns && known.nfc == nfc && known.ignore_merges == tokenizer.ignore_merges)
      return known.name;
  }
  // Which of the two settings is another matters less than the pattern.
  for (const PreName& known : kPreNames) {
    if (known.patterns == patterns) return known.name;
  }
  fail("\"{}\": inferno does not know this pre-tokenizer ({}); a GGUF file of the model may work", path,
       printable(patterns, 200));
}

}  // namespace inferno::hf
