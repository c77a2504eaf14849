#include "engine/draft_model.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/error.h"
#include "engine/first_guess.h"

namespace inferno {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;
// Files of one family are padded to vocabularies that differ by so many rows at most.
constexpr int32_t kMostPadding = 256;
// Tokens that are computed with the next guess; more are caught up with first, so many at least.
constexpr int32_t kNear = 32;
constexpr int32_t kLeastChunk = 16;

KvConfig cache_config(const ModelConfig& config, DType dtype, int32_t positions, int32_t pages) {
  return {.layers = cache_layers(config),
          .dtype = dtype,
          .max_positions = std::min(positions, config.context),
          .pages = pages};
}

StepLimits limits_of(StepLimits limits) {
  limits.max_logit_rows = limits.max_sequences;
  return limits;
}

// Its texts and those of the first model are of the same tokens.
void check_vocabulary(const ModelFile& file, const ModelFile& first_file, int32_t size, int32_t first_size) {
  if (std::abs(size - first_size) > kMostPadding) {
    fail("the draft model \"{}\" has {} tokens and \"{}\" {}; use one of the same vocabulary", file.path(), size,
         first_file.path(), first_size);
  }
  const StringList* tokens = file.find_strings("tokenizer.ggml.tokens");
  const StringList* first_tokens = first_file.find_strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || first_tokens == nullptr) return;  // ids only
  for (size_t i = 0; i < std::min(tokens->size(), first_tokens->size()); ++i) {
    if ((*tokens)[i] == (*first_tokens)[i]) continue;
    fail("token {} of the draft model \"{}\" is another one than that of \"{}\"; use one of the same vocabulary", i,
         file.path(), first_file.path());
  }
}

}  // namespace

void DraftModel::check(const ModelFile& file, const ModelFile& first_file) {
  const ModelConfig config = read_config(file);
  const ModelConfig first = read_config(first_file);
  if (config.encoder.only) fail("\"{}\" makes embeddings, no text: it cannot draft", file.path());
  for (const auto& [one, path] : {std::pair(&config, &file.path()), std::pair(&first, &first_file.path())}) {
    const bool recurrent = std::ranges::any_of(one->layers, [](const LayerConfig& l) { return l.is_recurrent(); });
    if (recurrent)
      fail("\"{}\" has recurrent layers, which cannot take tokens back: no draft model goes with it", *path);
  }
  check_vocabulary(file, first_file, config.vocabulary, first.vocabulary);
}

uint64_t DraftModel::page_bytes(const ModelFile& file, DType kv_dtype) {
  return KvCache::page_bytes(cache_config(read_config(file), kv_dtype, kPage, 1));
}

DraftModel::DraftModel(Backend& backend, const ModelFile& file, DType kv_dtype, int32_t positions, int32_t pages,
                       const StepLimits& limits, int32_t first_vocabulary, const OnProgress& on_progress)
    : backend_(backend),
      model_(backend, file, read_config(file), positions, on_progress),
      cache_(backend, cache_config(model_.config(), kv_dtype, positions, pages)),
      decoder_(backend, model_, cache_, limits_of(limits)),
      first_vocabulary_(first_vocabulary),
      cost_(first_guess(model_.config(), model_.weight_bytes(), backend)),
      samples_(static_cast<size_t>(limits.max_sequences)),
      found_pages_(static_cast<size_t>(cache_.max_pages())) {
  guessing_.reserve(samples_.size());
}

double DraftModel::seconds(int32_t first, int32_t tokens) const {
  return cost_.seconds(StepShape{}.with(first, tokens, 1));
}

// Pages of a text that began alike.
void DraftModel::begin(Sequence& s) {
  if (!s.request.request.reuse_prefix) return;
  const auto positions = static_cast<size_t>(std::min(s.length() - 1, cache_.config().max_positions));
  const PagePool::Match match = cache_.pool().find(s.request.root, std::span(s.tokens).first(positions), found_pages_);
  s.draft_kv->share(std::span(found_pages_).first(static_cast<size_t>(match.pages)));
  s.draft_computed = match.pages * kPage;
}

bool DraftModel::catch_up(Sequence& s, double seconds) {
  KvSequence& kv = *s.draft_kv;
  if (kv.capacity() == 0) begin(s);
  const int32_t end = std::min(s.length() + kMostDraft, s.max_tokens);
  if (kv.capacity() < end && !kv.resize(end)) return false;
  int32_t tokens = s.remaining_draft();
  const bool near = tokens <= kNear;
  if (!near) {
    const int32_t fit = cost_.tokens_within(seconds, {}, s.draft_computed, tokens - 1, 0);
    tokens = std::min({tokens - 1, decoder_.limits().max_tokens, std::max(fit, kLeastChunk)});
  }
  const auto fresh =
      std::span<const int32_t>(s.tokens).subspan(static_cast<size_t>(s.draft_computed), static_cast<size_t>(tokens));
  if (std::ranges::any_of(fresh, [&](int32_t id) { return id >= model_.config().vocabulary; })) return false;
  if (near) return true;
  const auto begin = std::chrono::steady_clock::now();
  decoder_.clear();
  decoder_.add(kv, s.draft_computed, fresh, 0);
  decoder_.run();
  backend_.synchronize();
  cost_.observe(StepShape{}.with(s.draft_computed, tokens, 0),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  s.draft_computed += tokens;
  return false;
}

void DraftModel::guess(std::span<Sequence* const> sequences) {
  guessing_.clear();
  for (Sequence* s : sequences) guessing_.push_back(s);
  try {
    while (!guessing_.empty()) run_round();
  } catch (...) {
    for (Sequence* s : sequences) s->tokens.resize(static_cast<size_t>(s->step_length));
    throw;
  }
  for (Sequence* s : sequences) s->tokens.resize(static_cast<size_t>(s->step_length));
}

// One more token for each; guesses are among the tokens meanwhile.
void DraftModel::run_round() {
  const auto begin = std::chrono::steady_clock::now();
  decoder_.clear();
  StepShape shape;
  size_t rows = 0;
  std::erase_if(guessing_, [&](Sequence* s) {
    const int32_t tokens = s->remaining_draft();
    if (shape.tokens + tokens > decoder_.limits().max_tokens) return true;
    decoder_.add(*s->draft_kv, s->draft_computed, std::span(s->tokens).subspan(static_cast<size_t>(s->draft_computed)),
                 1);
    shape = shape.with(s->draft_computed, tokens, 1);
    const Request& request = s->request.request;
    samples_[rows++] = {.settings = request.sampling,
                        .sample_index = s->sample,
                        .position = s->length(),
                        .history = s->tokens,
                        .bias = request.bias};
    return false;
  });
  if (rows == 0) return;
  decoder_.run(std::span<const SampleRequest>(samples_).first(rows));
  cost_.observe(shape, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  size_t row = 0;
  std::erase_if(guessing_, [&](Sequence* s) {
    const int32_t token = decoder_.sampled()[row++];
    s->draft_computed = s->length();
    if (token < 0 || token >= first_vocabulary_) return true;
    s->draft[static_cast<size_t>(s->draft_count++)] = token;
    if (s->draft_count == s->draft_wanted || token >= model_.config().vocabulary) return true;
    s->tokens.push_back(token);
    return false;
  });
}

void DraftModel::leave(Sequence& s) {
  if (s.request.request.reuse_prefix) {
    PageKey key = s.request.root;
    const int32_t known = std::min(s.draft_computed, s.length());
    for (int32_t page = 0; (page + 1) * kPage <= known; ++page) {
      const auto tokens = std::span<const int32_t>(s.tokens).subspan(static_cast<size_t>(page) * kPage, kPage);
      cache_.pool().list(s.draft_kv->pages()[static_cast<size_t>(page)], key, tokens);
      key = page_key(key, tokens);
    }
  }
  s.draft_kv->clear();
  s.draft_computed = 0;
}

}  // namespace inferno
