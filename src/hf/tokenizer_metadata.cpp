#include "hf/tokenizer_metadata.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "file/vocabulary.h"
#include "hf/tokenizer_json.h"

namespace inferno::hf {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxSettingsBytes = uint64_t{16} << 20;

// A small JSON file of the folder; an empty object where there is none.
Json read_settings(const std::string& path, const std::function<bool(std::string_view)>& keep = {}) {
  if (!file_exists(path)) return Json::object();
  return parse_json(read_small_file(path, kMaxSettingsBytes), path, keep);
}

// A vocabulary by id, as GGUF files have it.
struct TokenList {
  std::vector<std::string_view> tokens;  // of the tokenizer's text; empty: no token has this id
  std::vector<TokenType> types;

  [[nodiscard]] std::optional<uint32_t> find(std::string_view content) const {
    const auto at = std::ranges::find(tokens, content);
    return at == tokens.end() ? std::nullopt : std::optional(static_cast<uint32_t>(at - tokens.begin()));
  }
};

TokenList list_tokens(const TokenizerJson& tokenizer, uint64_t rows, const std::string& path) {
  if (rows > kMaxTokens) fail("\"{}\": the model has {} tokens, more than are read from folders", path, rows);
  TokenList list{std::vector<std::string_view>(rows), std::vector<TokenType>(rows, TokenType::unused)};
  const auto place = [&](std::string_view token, uint64_t id) {
    if (id >= rows)
      fail("\"{}\": token \"{}\" has id {}, but the model has {} tokens", path, printable(token), id, rows);
    if (!list.tokens[id].empty() && list.tokens[id] != token)
      fail("\"{}\": tokens \"{}\" and \"{}\" have the same id {}", path, printable(list.tokens[id]), printable(token),
           id);
    list.tokens[id] = token;
  };
  for (size_t i = 0; i < tokenizer.ids.size(); ++i) {
    place(tokenizer.tokens[i], tokenizer.ids[i]);
    list.types[tokenizer.ids[i]] = TokenType::normal;
  }
  for (const AddedToken& token : tokenizer.added) {
    place(token.content, token.id);
    list.types[token.id] = token.special ? TokenType::control : TokenType::user_defined;
  }
  return list;
}

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

// SentencePiece's tokenizers merge by scores of tokens, the folder's by the order of merges: a token's score is the
// place of the first merge that makes it.
std::vector<float> scores_of(const TokenizerJson& tokenizer, const TokenList& list) {
  std::vector<uint32_t> by_text(list.tokens.size());
  std::iota(by_text.begin(), by_text.end(), 0U);
  const auto text = [&](uint32_t id) { return list.tokens[id]; };
  std::ranges::sort(by_text, {}, text);
  const auto unmade = -static_cast<float>(tokenizer.merges.size());
  std::vector<float> scores(list.tokens.size(), unmade);
  std::string joined;
  for (size_t i = tokenizer.merges.size(); i-- > 0;) {
    joined = tokenizer.merges[i];
    joined.erase(joined.find(' '), 1);
    const auto at = std::ranges::lower_bound(by_text, std::string_view(joined), {}, text);
    if (at != by_text.end() && list.tokens[*at] == joined) scores[*at] = -static_cast<float>(i);
  }
  return scores;
}

void set_lists(const TokenizerJson& tokenizer, const TokenList& list, bool with_merges, MetadataList& metadata) {
  StringList tokens;
  std::vector<int32_t> types;
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    tokens.append(list.types[id] == TokenType::unused ? fmt::format("[PAD{}]", id) : std::string(list.tokens[id]));
    types.push_back(static_cast<int32_t>(list.types[id]));
  }
  metadata.set("tokenizer.ggml.tokens", MetadataArray{std::move(tokens)});
  metadata.set("tokenizer.ggml.token_type", MetadataArray{std::move(types)});
  if (with_merges) metadata.set("tokenizer.ggml.merges", MetadataArray{tokenizer.merges});
}

bool mentions(const Json& value, std::string_view text) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).find(text) != std::string::npos;
}

void set_sentencepiece(const TokenizerJson& tokenizer, TokenList& list, MetadataList& metadata) {
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    if (is_byte_token(list.tokens[id])) list.types[id] = TokenType::byte;
    if (!tokenizer.unknown.empty() && list.tokens[id] == tokenizer.unknown) list.types[id] = TokenType::unknown;
  }
  const bool by_merges = metadata.architecture() == "gemma4";
  metadata.set("tokenizer.ggml.model", std::string(by_merges ? "gemma4" : "llama"));
  set_lists(tokenizer, list, by_merges, metadata);
  if (!by_merges) metadata.set("tokenizer.ggml.scores", MetadataArray{scores_of(tokenizer, list)});
  const Json normalizer = tokenizer.rest.value("normalizer", Json());
  const Json words = tokenizer.rest.value("pre_tokenizer", Json());
  const bool prefix = mentions(normalizer, "\"Prepend\"") || mentions(words, "\"prepend_scheme\":\"first\"") ||
                      mentions(words, "\"prepend_scheme\":\"always\"") || mentions(words, "\"add_prefix_space\":true");
  metadata.set("tokenizer.ggml.add_space_prefix", prefix);
}

// Files mark where words begin, the folder where they go on.
void set_wordpiece(const TokenizerJson& tokenizer, const TokenList& list, const std::string& path,
                   MetadataList& metadata) {
  const Json normalizer = tokenizer.rest.value("normalizer", Json());
  if (!normalizer.is_object() || normalizer.value("type", Json()) != "BertNormalizer" ||
      mentions(normalizer, "\"clean_text\":false"))
    fail("\"{}\": WordPiece with another normalizer than BERT's is not read", path);
  constexpr std::string_view kGoesOn = "##";
  StringList tokens;
  std::vector<int32_t> types;
  for (size_t id = 0; id < list.tokens.size(); ++id) {
    const std::string_view token = list.tokens[id];
    const bool word = list.types[id] == TokenType::normal && !token.starts_with(kGoesOn);
    if (list.types[id] == TokenType::unused) {
      tokens.append(fmt::format("[PAD{}]", id));
    } else {
      tokens.append((word ? "\u2581" : "") +
                    std::string(token.starts_with(kGoesOn) ? token.substr(kGoesOn.size()) : token));
    }
    types.push_back(static_cast<int32_t>(list.types[id]));
  }
  metadata.set("tokenizer.ggml.model", std::string("bert"));
  metadata.set("tokenizer.ggml.tokens", MetadataArray{std::move(tokens)});
  metadata.set("tokenizer.ggml.token_type", MetadataArray{std::move(types)});
  const bool lowercase = mentions(normalizer, "\"lowercase\":true");
  metadata.set("tokenizer.ggml.normalizer.lowercase", lowercase);
  metadata.set(
      "tokenizer.ggml.normalizer.strip_accents",
      mentions(normalizer, "\"strip_accents\":true") || (lowercase && mentions(normalizer, "\"strip_accents\":null")));
}

// "<s>" or {"content": "<s>"}
std::optional<std::string> token_text(const Fields& settings, std::string_view key) {
  const Json* value = settings.find(key);
  if (value == nullptr) return std::nullopt;
  return value->is_object() ? settings.sub(key).find_text("content") : settings.find_text(key);
}

// An id, or a list of them.
std::vector<uint32_t> ids_of(const Fields& settings, std::string_view key) {
  const Json* value = settings.find(key);
  if (value == nullptr) return {};
  std::vector<uint32_t> ids;
  const auto add = [&](const Json& item) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > UINT32_MAX)
      settings.reject(key, "a token's id, or a list");
    ids.push_back(item.get<uint32_t>());
  };
  if (value->is_array()) {
    for (const Json& item : *value) add(item);
  } else {
    add(*value);
  }
  return ids;
}

// Whether texts begin (end) with a token of their own, as the tokenizer's template says.
bool template_adds(const Json& processor, bool at_end) {
  if (!processor.is_object()) return false;
  if (const auto list = processor.find("processors"); list != processor.end() && list->is_array())
    return std::ranges::any_of(*list, [&](const Json& part) { return template_adds(part, at_end); });
  const auto single = processor.find("single");
  if (single == processor.end() || !single->is_array() || single->empty()) return false;
  const Json& part = at_end ? single->back() : single->front();
  return part.is_object() && part.contains("SpecialToken");
}

struct SpecialToken {
  std::string_view name;   // in the key
  std::string_view field;  // of tokenizer_config.json; config.json's ends in _id
};
constexpr SpecialToken kSpecialTokens[] = {{"bos", "bos_token"},     {"eos", "eos_token"}, {"padding", "pad_token"},
                                           {"unknown", "unk_token"}, {"cls", "cls_token"}, {"seperator", "sep_token"},
                                           {"mask", "mask_token"}};

void set_special_tokens(const Fields& settings, const Fields& generation, const Config& config, const TokenList& list,
                        MetadataList& metadata) {
  const auto set = [&](std::string_view name, uint32_t id) {
    metadata.set(fmt::format("tokenizer.ggml.{}_token_id", name), id);
  };
  std::optional<uint32_t> eos;
  for (const auto& [name, field] : kSpecialTokens) {
    std::optional<uint32_t> id;
    if (const auto text = token_text(settings, field)) id = list.find(*text);
    const std::vector<uint32_t> stated = ids_of(config, std::string(field) + "_id");
    if (!id && !stated.empty() && stated.front() < list.tokens.size()) id = stated.front();
    if (!id) continue;
    set(name, *id);
    if (name == "eos") eos = id;
  }
  // Other tokens that end a text; files have room for two more.
  std::vector<uint32_t> ends = ids_of(generation, "eos_token_id");
  std::erase_if(ends, [&](uint32_t id) { return id == eos || id >= list.tokens.size(); });
  if (!eos && !ends.empty()) {
    set("eos", ends.front());
    ends.erase(ends.begin());
  }
  if (!ends.empty()) set("eot", ends[0]);
  if (ends.size() > 1) set("eom", ends[1]);
}

// chat_template.jinja, chat_template.json, or in tokenizer_config.json: a template, or several with names.
std::optional<std::string> find_chat_template(const std::string& folder, const Fields& settings) {
  if (const std::string path = folder + "/chat_template.jinja"; file_exists(path))
    return read_small_file(path, kMaxSettingsBytes);
  const Json* value = settings.find("chat_template");
  if (value == nullptr) {
    const std::string path = folder + "/chat_template.json";
    const Json file = read_settings(path);
    return Fields(&file, nullptr, path).find_text("chat_template");
  }
  if (!value->is_array()) return settings.find_text("chat_template");
  for (const Json& item : *value) {
    const Fields named(&item, nullptr, settings.path());
    if (!item.is_object()) settings.reject("chat_template", "a template, or a list of templates with names");
    if (value->size() == 1 || named.find_text("name") == "default") return named.find_text("template");
  }
  return std::nullopt;
}

}  // namespace

void set_tokenizer_metadata(const std::string& folder, const Config& config, uint64_t rows, MetadataList& metadata) {
  const std::string path = folder + "/tokenizer.json";
  if (!file_exists(path)) return;
  const TokenizerJson tokenizer = parse_tokenizer_json(read_small_file(path, kMaxTokenizerBytes), path);
  TokenList list = list_tokens(tokenizer, rows, path);
  if (tokenizer.model == "WordPiece") {
    set_wordpiece(tokenizer, list, path, metadata);
  } else if (tokenizer.byte_fallback || std::ranges::any_of(list.tokens, is_byte_token)) {
    set_sentencepiece(tokenizer, list, metadata);
  } else {
    metadata.set("tokenizer.ggml.model", std::string("gpt2"));
    metadata.set("tokenizer.ggml.pre", std::string(pre_tokenizer_name(tokenizer, path)));
    set_lists(tokenizer, list, true, metadata);
  }
  const std::string settings_path = folder + "/tokenizer_config.json";
  const Json settings_file =
      read_settings(settings_path, [](std::string_view key) { return key != "added_tokens_decoder"; });
  const Fields settings(&settings_file, nullptr, settings_path);
  const std::string generation_path = folder + "/generation_config.json";
  const Json generation_file = read_settings(generation_path);
  set_special_tokens(settings, {&generation_file, nullptr, generation_path}, config, list, metadata);
  const Json processor = tokenizer.rest.value("post_processor", Json());
  const auto adds = [&](std::string_view key, bool at_end) {
    return settings.find_bool(key).value_or(template_adds(processor, at_end));
  };
  metadata.set("tokenizer.ggml.add_bos_token", adds("add_bos_token", false));
  metadata.set("tokenizer.ggml.add_eos_token", adds("add_eos_token", true));
  if (auto text = find_chat_template(folder, settings)) metadata.set("tokenizer.chat_template", std::move(*text));
}

void set_pooling_metadata(const std::string& folder, MetadataList& metadata) {
  const std::string path = folder + "/1_Pooling/config.json";
  const Json file = read_settings(path);
  const Fields settings(&file, nullptr, path);
  struct Mode {
    std::string_view key;
    uint32_t number;
  };
  constexpr Mode kModes[] = {
      {"pooling_mode_mean_tokens", 1}, {"pooling_mode_cls_token", 2}, {"pooling_mode_lasttoken", 3}};
  for (const auto& [key, number] : kModes) {
    if (settings.find_bool(key).value_or(false)) metadata.size("pooling_type", number);
  }
}

void set_sampling_metadata(const std::string& folder, MetadataList& metadata) {
  const std::string path = folder + "/generation_config.json";
  const Json file = read_settings(path);
  const Fields settings(&file, nullptr, path);
  if (!settings.find_bool("do_sample").value_or(false)) return;
  const auto number = [&](const char* key, std::string_view from) {
    if (const auto value = settings.find_number(from)) metadata.set(key, static_cast<float>(*value));
  };
  number("general.sampling.temp", "temperature");
  if (const auto value = settings.find_uint("top_k"))
    metadata.set("general.sampling.top_k", static_cast<int32_t>(std::min<uint32_t>(*value, INT32_MAX)));
  number("general.sampling.top_p", "top_p");
  number("general.sampling.min_p", "min_p");
  number("general.sampling.penalty_repeat", "repetition_penalty");
}

}  // namespace inferno::hf
