#include "engine/embedder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

constexpr int32_t kMaxTexts = 64;  // of a step
// Of Qwen3's rerankers, whose files may lack it.
constexpr const char* kQwen3Pair =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a "
    "web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::array<std::string_view, 5> kPoolingNames = {"none", "mean", "cls", "last", "rank"};

// One row of a text's rows [tokens, d]; the mean is summed in doubles, token by token.
std::vector<float> pool(std::span<const float> rows, size_t d, Pooling pooling) {
  if (pooling == Pooling::cls) return {rows.begin(), rows.begin() + static_cast<ptrdiff_t>(d)};
  if (pooling == Pooling::last) return {rows.end() - static_cast<ptrdiff_t>(d), rows.end()};
  std::vector<double> sum(d, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) sum[i % d] += rows[i];
  const size_t tokens = rows.size() / d;
  std::vector<float> mean;
  mean.reserve(d);
  for (const double s : sum) mean.push_back(static_cast<float>(s / static_cast<double>(tokens)));
  return mean;
}

void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float v : vector) squares += static_cast<double>(v) * v;
  if (!std::isfinite(squares)) fail("the model's numbers for a text are not finite; its file may be damaged");
  if (squares == 0) return;
  const double factor = 1 / std::sqrt(squares);
  for (float& v : vector) v = static_cast<float>(v * factor);
}

// A template with both texts at their places; what looks like a control token in them is plain text.
std::vector<PromptPiece> pieces_of(std::string_view rest, std::string_view query, std::string_view document) {
  constexpr std::string_view kQuery = "{query}";
  constexpr std::string_view kDocument = "{document}";
  std::vector<PromptPiece> pieces;
  while (true) {
    const size_t place = std::min(rest.find(kQuery), rest.find(kDocument));
    pieces.push_back({std::string(rest.substr(0, place)), true});
    if (place == std::string_view::npos) return pieces;
    const bool is_query = rest.substr(place).starts_with(kQuery);
    pieces.push_back({std::string(is_query ? query : document), false});
    rest.remove_prefix(place + (is_query ? kQuery : kDocument).size());
  }
}

}  // namespace

std::string rerank_template(const ModelFile& file, const ModelConfig& config) {
  if (const std::string* own = file.find_string("tokenizer.chat_template.rerank"); own != nullptr) return *own;
  const bool reads_prompts = config.encoder.classes > 0 && !config.encoder.only;
  return reads_prompts ? kQwen3Pair : "";
}

Pooling pooling_from_name(std::string_view name) {
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
    if (pooling_name(pooling) == name) return pooling;
  }
  fail_usage("there is no pooling \"{}\" (mean, cls, last)", name);
}

std::string_view pooling_name(Pooling pooling) {
  return kPoolingNames[static_cast<size_t>(pooling)];
}

Embedder::Embedder(Backend& backend, const Model& model, const Tokenizer* tokenizer, StepTurn& turn,
                   std::string rerank_template)
    : backend_(backend),
      model_(model),
      tokenizer_(tokenizer),
      turn_(turn),
      rerank_template_(std::move(rerank_template)) {}

int32_t Embedder::width() const {
  const EncoderConfig& e = model_.config().encoder;
  if (e.dense[1] > 0) return e.dense[1];
  return e.dense[0] > 0 ? e.dense[0] : model_.config().width;
}

Pooling Embedder::pooling() const {
  const EncoderConfig& e = model_.config().encoder;
  if (e.pooling == Pooling::rank) return Pooling::none;
  return e.pooling == Pooling::none && e.only ? Pooling::mean : e.pooling;
}

// Models that are read at their last row were trained with an end there, whether their files say so or not.
bool Embedder::ends_with_eos() const {
  return tokenizer_->wants_eos() || (model_.config().encoder.pooling == Pooling::last && tokenizer_->eos());
}

EncoderText Embedder::encode(std::string_view text, bool truncate) const {
  if (tokenizer_ == nullptr) fail("this model has no vocabulary, or this build no tokenizers; give token ids");
  std::vector<int32_t> ids = tokenizer_->encode(text);
  const bool bos = tokenizer_->wants_bos();
  const bool eos = ends_with_eos();
  const size_t room = static_cast<size_t>(context()) - std::min<size_t>(static_cast<size_t>(context()), bos + eos);
  if (truncate && ids.size() > room) ids.resize(room);
  if (bos) ids.insert(ids.begin(), *tokenizer_->bos());
  if (eos) ids.push_back(*tokenizer_->eos());
  return encode(std::move(ids), truncate);
}

EncoderText Embedder::encode(std::vector<int32_t> ids, bool truncate) const {
  if (ids.empty()) fail("a text without tokens has no embedding");
  const auto most = static_cast<size_t>(context());
  if (truncate && ids.size() > most) ids.resize(most);
  if (ids.size() > most) fail("the text has {} tokens, the model reads {}; shorten it", ids.size(), most);
  for (const int32_t id : ids) {
    if (id < 0 || id >= model_.config().vocabulary) {
      fail("token id {} is not in the vocabulary (0 to {})", id, model_.config().vocabulary - 1);
    }
  }
  return {.ids = std::move(ids)};
}

EncoderText Embedder::encode_pair(std::string_view query, std::string_view document, bool truncate) const {
  if (tokenizer_ == nullptr) fail("this model has no vocabulary, or this build no tokenizers");
  if (!rerank_template_.empty()) {
    const std::vector<PromptPiece> pieces = pieces_of(rerank_template_, query, document);
    return encode(tokenizer_->encode(pieces), truncate);
  }
  EncoderText pair;
  std::vector<int32_t> second = tokenizer_->encode(document);
  if (tokenizer_->bos()) pair.ids.push_back(*tokenizer_->bos());
  const std::vector<int32_t> first = tokenizer_->encode(query);
  pair.ids.insert(pair.ids.end(), first.begin(), first.end());
  if (tokenizer_->eos()) pair.ids.push_back(*tokenizer_->eos());
  const size_t ends = tokenizer_->eos() ? 1 : 0;
  const size_t taken = pair.ids.size() + ends;
  const size_t room = static_cast<size_t>(context()) - std::min<size_t>(static_cast<size_t>(context()), taken);
  if (truncate && second.size() > room) second.resize(room);
  const auto begin = static_cast<int32_t>(pair.ids.size());
  pair.ids.insert(pair.ids.end(), second.begin(), second.end());
  if (tokenizer_->eos()) pair.ids.push_back(*tokenizer_->eos());
  EncoderText text = encode(std::move(pair.ids), false);
  // Models that tell the two apart have a second vector for it.
  if (model_.config().encoder.types > 1) text.second = begin;
  return text;
}

void Embedder::check(const EmbedSettings& settings) const {
  if (settings.pooling == Pooling::none && pooling() == Pooling::none) {
    fail_usage("this model {}; it has no embeddings unless a pooling is chosen (mean, cls, last)",
               scores_pairs() ? "scores pairs of texts" : "makes text");
  }
  if (settings.dimensions < 0 || settings.dimensions > width()) {
    fail_usage("{} dimensions were asked for, the model has {}", settings.dimensions, width());
  }
}

void Embedder::reserve(size_t longest) {
  const int32_t now = encoder_ == nullptr ? 0 : encoder_->limits().max_tokens;
  if (std::cmp_greater_equal(now, longest)) return;
  // Doubled, so that texts of growing length do not make it anew each time.
  const int64_t wanted = std::max({static_cast<int64_t>(longest), int64_t{2} * now,
                                   int64_t{std::min(backend_.preferred_step_tokens(), context())}});
  encoder_.reset();
  encoder_ = std::make_unique<Encoder>(
      backend_, model_,
      EncoderLimits{.max_tokens = static_cast<int32_t>(std::min<int64_t>(wanted, context())), .max_texts = kMaxTexts});
}

void Embedder::prepare() {
  const std::scoped_lock lock(mutex_);
  const StepTurn::Hold hold(&turn_);
  reserve(1);
}

template <typename Finish>
void Embedder::run(std::span<const EncoderText> texts, Pooling pooling, const ShouldEnd& ends, Finish finish) {
  const auto d = static_cast<size_t>(model_.config().width);
  size_t longest = 0;
  for (const EncoderText& text : texts) longest = std::max(longest, text.ids.size());
  const std::scoped_lock lock(mutex_);
  for (size_t next = 0; next < texts.size();) {
    if (ends && ends()) fail("cancelled");
    const StepTurn::Hold hold(&turn_);
    reserve(longest);
    const size_t first = next;
    encoder_->clear();
    while (next < texts.size() && encoder_->add(texts[next].ids, texts[next].second)) ++next;
    encoder_->run();
    ++steps_;
    for (const EncoderText& text : texts.subspan(first, next - first)) tokens_ += static_cast<int64_t>(text.ids.size());
    std::vector<float> pooled;
    std::span<const float> rows = encoder_->rows();
    for (size_t i = first; i < next; ++i) {
      const std::vector<float> row = pool(rows.first(texts[i].ids.size() * d), d, pooling);
      rows = rows.subspan(texts[i].ids.size() * d);
      pooled.insert(pooled.end(), row.begin(), row.end());
    }
    finish(std::move(pooled));
  }
}

std::vector<std::vector<float>> Embedder::embed(std::span<const EncoderText> texts, const EmbedSettings& settings,
                                                const ShouldEnd& ends) {
  check(settings);
  const EncoderWeights& w = model_.encoder();
  std::vector<std::vector<float>> vectors;
  run(texts, settings.pooling == Pooling::none ? pooling() : settings.pooling, ends, [&](std::vector<float> pooled) {
    for (const auto& dense : w.dense) {
      if (dense != nullptr) pooled = encoder_->multiply(pooled, *dense, nullptr);
    }
    const auto all = static_cast<ptrdiff_t>(width());
    const ptrdiff_t kept = settings.dimensions > 0 ? settings.dimensions : all;
    for (auto row = pooled.begin(); row != pooled.end(); row += all) {
      std::vector<float>& vector = vectors.emplace_back(row, row + kept);
      if (settings.normalize) normalize(vector);
    }
  });
  return vectors;
}

std::vector<float> Embedder::score(std::span<const EncoderText> pairs, const ShouldEnd& ends) {
  if (!scores_pairs()) fail_usage("this model has no layer that scores pairs of texts (cls.output.weight)");
  const EncoderWeights& w = model_.encoder();
  std::vector<float> scores;
  const Pooling pooling = model_.config().encoder.only ? Pooling::cls : Pooling::last;
  run(pairs, pooling, ends, [&](std::vector<float> pooled) {
    if (w.class_layer != nullptr) {
      pooled = encoder_->multiply(pooled, *w.class_layer, w.class_layer_bias.get());
      for (float& v : pooled) v = std::tanh(v);
    }
    pooled = encoder_->multiply(pooled, *w.classes, w.classes_bias.get());
    const auto classes = static_cast<size_t>(w.classes->rows());
    for (size_t i = 0; i < pooled.size(); i += classes) {
      const float first = pooled[i];
      scores.push_back(classes == 2 ? 1 / (1 + std::exp(pooled[i + 1] - first)) : first);
    }
  });
  return scores;
}

}  // namespace inferno
