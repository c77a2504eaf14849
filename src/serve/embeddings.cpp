#include "serve/embeddings.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/engine.h"
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

// A request as the endpoints see it.
struct Texts {
  const Fields& fields;
  const ServedModel& model;
  Embedder& embedder;
  const Embedder::ShouldEnd& ends;
};

EmbedSettings settings_of(const Texts& asked) {
  EmbedSettings settings;
  settings.dimensions = static_cast<int32_t>(asked.fields.integer("dimensions", 1, asked.embedder.width()).value_or(0));
  return settings;
}

OrderedJson openai_embeddings(const Texts& asked) {
  const std::string* format = asked.fields.string("encoding_format");
  if (format != nullptr && *format != "float" && *format != "base64") {
    fail_field("encoding_format", "must be \"float\" or \"base64\"");
  }
  const EmbedSettings settings = settings_of(asked);
  const std::vector<EncoderText> texts = inputs_of(asked.fields, "input", asked.embedder, false);
  if (texts.empty()) fail_field("input", "is empty");
  OrderedJson data = OrderedJson::array();
  for (const std::vector<float>& vector : asked.embedder.embed(texts, settings, asked.ends)) {
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
          {"model", asked.model.name},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

// llama-server's own: {"content"} or {"input"} to a list, in which a text's vector is a list of one row.
OrderedJson native_embeddings(const Texts& asked) {
  const char* name = asked.fields.find("content") != nullptr ? "content" : "input";
  EmbedSettings settings = settings_of(asked);
  const int64_t norm = asked.fields.integer("embd_normalize", -1, INT32_MAX).value_or(2);
  if (norm != -1 && norm != 2) fail_unsupported("embd_normalize", "other than 2 (unit length) and -1 (none) ");
  settings.normalize = norm == 2;
  const std::vector<EncoderText> texts = inputs_of(asked.fields, name, asked.embedder, false);
  if (texts.empty()) fail_field(name, "is empty");
  OrderedJson list = OrderedJson::array();
  for (const std::vector<float>& vector : asked.embedder.embed(texts, settings, asked.ends)) {
    list.push_back({{"index", list.size()}, {"embedding", OrderedJson::array({vector})}});
  }
  return list;
}

// {"input"} to {"embeddings"}, or the older {"prompt"} to {"embedding"}.
OrderedJson ollama_embeddings(const Texts& asked, bool older) {
  const auto begin = std::chrono::steady_clock::now();
  const bool truncate = asked.fields.boolean("truncate").value_or(true);
  const EmbedSettings settings = settings_of(asked);
  const std::vector<EncoderText> texts = inputs_of(asked.fields, older ? "prompt" : "input", asked.embedder, truncate);
  if (older && texts.size() != 1) fail_field("prompt", "must be one text");
  std::vector<std::vector<float>> vectors = asked.embedder.embed(texts, settings, asked.ends);
  if (older) return {{"embedding", std::move(vectors[0])}};
  const auto spent = std::chrono::steady_clock::now() - begin;
  return {{"model", asked.model.name},
          {"embeddings", std::move(vectors)},
          {"total_duration", std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()},
          {"load_duration", 0},
          {"prompt_eval_count", count_tokens(texts)}};
}

std::vector<EncoderText> pairs_of(const Texts& asked, const Json& documents) {
  const std::string* query = asked.fields.string("query");
  if (query == nullptr) fail_field("query", "is missing");
  std::vector<EncoderText> pairs;
  pairs.reserve(documents.size());
  for (const Json& document : documents) {
    const Json& text = document.is_object() && document.contains("text") ? document["text"] : document;
    if (!text.is_string()) fail_field("documents", "holds {}, must be texts", kind_of(text));
    pairs.push_back(asked.embedder.encode_pair(*query, text.get_ref<const std::string&>(), true));
  }
  return pairs;
}

OrderedJson rerank(const Texts& asked) {
  const Json* documents = asked.fields.array("documents");
  if (documents == nullptr || documents->empty()) fail_field("documents", "is missing or empty");
  if (documents->size() > kMaxInputs) fail_field("documents", "has more than {} entries", kMaxInputs);
  const auto most = static_cast<int64_t>(documents->size());
  const int64_t wanted = asked.fields.integer("top_n", 1, INT32_MAX).value_or(most);
  const bool with_texts = asked.fields.boolean("return_documents").value_or(false);
  const std::vector<EncoderText> pairs = pairs_of(asked, *documents);
  const std::vector<float> scores = asked.embedder.score(pairs, asked.ends);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // No number is the worst score.
  const auto key = [&](size_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
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
          {"model", asked.model.name},
          {"results", std::move(results)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace

std::string run_embeddings(const Endpoint& endpoint, const WorkerJob::Question& question) {
  const Fields fields(question.body);
  const Texts asked{.fields = fields,
                    .model = question.model,
                    .embedder = question.engine->embedder(),
                    .ends = question.is_pointless};
  if (endpoint.action == Action::rerank) {
    if (!asked.embedder.scores_pairs()) {
      fail_field("model", "\"{}\" does not rank texts; ask one that was made for it", asked.model.name);
    }
    return dump(rerank(asked));
  }
  if (asked.embedder.pooling() == Pooling::none) {
    fail_field("model", "\"{}\" {}, it makes no embeddings; ask one that was made for them", asked.model.name,
               asked.embedder.scores_pairs() ? "scores pairs of texts" : "makes text");
  }
  switch (endpoint.dialect) {
    case Dialect::native:
      return dump(native_embeddings(asked));
    case Dialect::ollama_chat:
      return dump(ollama_embeddings(asked, false));
    case Dialect::ollama_generate:
      return dump(ollama_embeddings(asked, true));
    default:
      return dump(openai_embeddings(asked));
  }
}

}  // namespace inferno::serve
