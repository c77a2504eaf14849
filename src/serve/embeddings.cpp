#include "serve/embeddings.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "serve/api_error.h"
#include "serve/json_fields.h"
#include "serve/reply.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxInputs = 2048;  // OpenAI's limit

// The bytes of little-endian floats.
std::string base64_of(std::span<const float> values) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(values.size() * 4);
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFFU);
  }
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 0x3FU] : '=';
  }
  return text;
}

// One text, several, one list of token ids, or several.
std::vector<EncoderText> inputs_of(const Fields& fields, const char* name, const Embedder& embedder, bool truncate) {
  const Json* input = fields.find(name);
  if (input == nullptr) fail_field(name, "is missing");
  std::vector<EncoderText> texts;
  const auto add = [&](const Json& item) {
    if (item.is_string()) {
      texts.push_back(embedder.encode(item.get_ref<const std::string&>(), truncate));
    } else if (item.is_array()) {
      texts.push_back(embedder.encode(ids_of(item, name), truncate));
    } else {
      fail_field(name, "holds {}, must be texts or lists of token ids", kind_of(item));
    }
  };
  const bool is_one = input->is_string() || (input->is_array() && !input->empty() && input->front().is_number());
  if (!is_one && !input->is_array()) fail_field(name, "is {}, must be a text or a list", kind_of(*input));
  if (is_one) {
    add(*input);
    return texts;
  }
  if (input->size() > kMaxInputs) fail_field(name, "has {} entries, at most {} are taken", input->size(), kMaxInputs);
  for (const Json& item : *input) add(item);
  return texts;
}

int64_t count_tokens(std::span<const EncoderText> texts) {
  return std::accumulate(texts.begin(), texts.end(), int64_t{0}, [](int64_t sum, const EncoderText& text) {
    return sum + static_cast<int64_t>(text.ids.size());
  });
}

EmbedSettings settings_of(const Fields& fields, const Embedder& embedder) {
  EmbedSettings settings;
  settings.dimensions = static_cast<int32_t>(fields.integer("dimensions", 1, embedder.width()).value_or(0));
  return settings;
}

OrderedJson openai_embeddings(const Fields& fields, const ServedModel& model, Embedder& embedder) {
  const std::string* format = fields.string("encoding_format");
  if (format != nullptr && *format != "float" && *format != "base64") {
    fail_field("encoding_format", "must be \"float\" or \"base64\"");
  }
  const EmbedSettings settings = settings_of(fields, embedder);
  const std::vector<EncoderText> texts = inputs_of(fields, "input", embedder, false);
  if (texts.empty()) fail_field("input", "is empty");
  OrderedJson data = OrderedJson::array();
  for (const std::vector<float>& vector : embedder.embed(texts, settings)) {
    OrderedJson item = {{"object", "embedding"}, {"index", data.size()}};
    if (format != nullptr && *format == "base64") {
      item["embedding"] = base64_of(vector);
    } else {
      item["embedding"] = vector;
    }
    data.push_back(std::move(item));
  }
  const int64_t tokens = count_tokens(texts);
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model.name},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

// {"input"} to {"embeddings"}, or the older {"prompt"} to {"embedding"}.
OrderedJson ollama_embeddings(const Fields& fields, const ServedModel& model, Embedder& embedder, bool older) {
  const auto begin = std::chrono::steady_clock::now();
  const bool truncate = fields.boolean("truncate").value_or(true);
  const EmbedSettings settings = settings_of(fields, embedder);
  const std::vector<EncoderText> texts = inputs_of(fields, older ? "prompt" : "input", embedder, truncate);
  if (older && texts.size() != 1) fail_field("prompt", "must be one text");
  std::vector<std::vector<float>> vectors = embedder.embed(texts, settings);
  if (older) return {{"embedding", std::move(vectors[0])}};
  const auto spent = std::chrono::steady_clock::now() - begin;
  return {{"model", model.name},
          {"embeddings", std::move(vectors)},
          {"total_duration", std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()},
          {"load_duration", 0},
          {"prompt_eval_count", count_tokens(texts)}};
}

OrderedJson rerank(const Fields& fields, const ServedModel& model, Embedder& embedder) {
  if (!embedder.scores_pairs()) throw ApiError(501, "this model does not rank texts: load one made for it");
  const std::string* query = fields.string("query");
  if (query == nullptr) fail_field("query", "is missing");
  const Json* documents = fields.array("documents");
  if (documents == nullptr || documents->empty()) fail_field("documents", "is missing or empty");
  if (documents->size() > kMaxInputs) fail_field("documents", "has more than {} entries", kMaxInputs);
  const auto most = static_cast<int64_t>(documents->size());
  const int64_t wanted = fields.integer("top_n", 1, INT32_MAX).value_or(most);
  const bool with_texts = fields.boolean("return_documents").value_or(false);
  std::vector<EncoderText> pairs;
  for (const Json& document : *documents) {
    const Json& text = document.is_object() && document.contains("text") ? document["text"] : document;
    if (!text.is_string()) fail_field("documents", "holds {}, must be texts", kind_of(text));
    pairs.push_back(embedder.encode_pair(*query, text.get_ref<const std::string&>(), true));
  }
  const std::vector<float> scores = embedder.score(pairs);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::min(wanted, most)));
  OrderedJson results = OrderedJson::array();
  for (const size_t index : order) {
    OrderedJson item = {{"index", index}, {"relevance_score", scores[index]}};
    const Json& document = (*documents)[index];
    if (with_texts) item["document"] = {{"text", document.is_object() ? document["text"] : document}};
    results.push_back(std::move(item));
  }
  const int64_t tokens = count_tokens(pairs);
  return {{"object", "list"},
          {"model", model.name},
          {"results", std::move(results)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace

std::string run_embeddings(const Endpoint& endpoint, const Json& body, const ServedModel& model, Engine& engine) {
  const Fields fields(body);
  Embedder& embedder = engine.embedder();
  if (endpoint.action == Action::rerank) return dump(rerank(fields, model, embedder));
  if (!endpoint.path.starts_with("/api/")) return dump(openai_embeddings(fields, model, embedder));
  return dump(ollama_embeddings(fields, model, embedder, endpoint.path == "/api/embeddings"));
}

}  // namespace inferno::serve
