// The parts of the decoder that a model over several ranks has: what the leader tells the others, and sums.
#include <algorithm>

#include "base/error.h"
#include "model/decoder.h"

namespace inferno {
namespace {

// Words of a step's message: candidates, words of copies, sequences; and of each sequence: its first position, tokens,
// logit rows, pages.
constexpr int32_t kStepHead = 3;
constexpr int32_t kSequenceHead = 4;

size_t f32_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols) * sizeof(float);
}

}  // namespace

int32_t Decoder::candidates_of(std::span<const SampleRequest> requests) {
  int32_t most = 1;
  for (const SampleRequest& request : requests) {
    const SamplingSettings& s = request.settings;
    const bool edits = !request.allowed.empty() || !request.bias.empty() || s.repeat_penalty != 1 ||
                       s.presence_penalty != 0 || s.frequency_penalty != 0;
    const bool greedy = s.temperature == 0;
    if (edits || request.top_logprobs >= 0 || (!greedy && (s.top_k < 1 || s.top_k > AllGatherArgs::kMost))) return 0;
    if (!greedy) most = std::max(most, s.top_k);
  }
  return most;
}

void Decoder::prepare_ranks() {
  const ModelConfig& c = model_.config();
  const std::span<const int32_t> begins = ranks_.vocabulary_begins;
  part_memory_ = backend_.allocate(f32_bytes(limits_.max_logit_rows, model_.share().vocabulary.count));
  begins_memory_ = backend_.allocate(begins.size_bytes());
  backend_.upload(begins_memory_.data(), begins.data(), begins.size_bytes());
  const auto has_norms = [](const LayerConfig& layer) { return layer.post_norms; };
  if (std::ranges::any_of(c.layers, has_norms)) sum_memory_ = backend_.allocate(f32_bytes(limits_.max_tokens, c.width));
  const auto sequences = static_cast<size_t>(limits_.max_sequences);
  copies_.reserve(2 * sequences);
  sequences_.reserve(sequences * (kSequenceHead + static_cast<size_t>(cache_.max_pages())) +
                     static_cast<size_t>(limits_.max_tokens));
  message_.reserve(kStepHead + copies_.capacity() + sequences_.capacity());
}

void Decoder::note_sequence(std::span<const int32_t> pages, int32_t first, std::span<const int32_t> tokens,
                            int32_t logit_rows) {
  // Pages beyond the step's last position are nobody's business yet.
  const auto count = static_cast<int32_t>(tokens.size());
  pages = pages.first(std::min(static_cast<size_t>(KvCache::pages_for(first + count)), pages.size()));
  sequences_.insert(sequences_.end(), {first, count, logit_rows, static_cast<int32_t>(pages.size())});
  sequences_.insert(sequences_.end(), pages.begin(), pages.end());
  sequences_.insert(sequences_.end(), tokens.begin(), tokens.end());
}

void Decoder::send_step(int32_t candidates) {
  candidates_ = candidates;
  message_.assign({candidates, static_cast<int32_t>(copies_.size()), batch_.sequences()});
  message_.insert(message_.end(), copies_.begin(), copies_.end());
  message_.insert(message_.end(), sequences_.begin(), sequences_.end());
  copies_.clear();
  ranks_.messages->send(RankMessage::step, message_);
}

void Decoder::note_copy(int32_t from, int32_t to) {
  copies_.insert(copies_.end(), {from, to});
}

void Decoder::follow(std::span<const int32_t> words, KvCache& cache) {
  const auto take = [&](int32_t count) {
    INFERNO_CHECK(count >= 0 && static_cast<size_t>(count) <= words.size());
    const std::span<const int32_t> taken = words.first(static_cast<size_t>(count));
    words = words.subspan(taken.size());
    return taken;
  };
  const std::span<const int32_t> head = take(kStepHead);
  candidates_ = head[0];
  const std::span<const int32_t> copies = take(head[1]);
  for (size_t i = 0; i + 1 < copies.size(); i += 2) cache.copy_page(copies[i], copies[i + 1]);
  clear();
  for (int32_t s = 0; s < head[2]; ++s) {
    const std::span<const int32_t> sequence = take(kSequenceHead);
    const std::span<const int32_t> pages = take(sequence[3]);
    add(pages, 0, sequence[0], take(sequence[1]), sequence[2]);
  }
  execute(false);
  backend_.synchronize();
}

void Decoder::record_sum(const Tensor& x) {
  backend_.all_reduce({.x = x, .wire = ranks_.wire});
}

void Decoder::record_normed_sum(const Weight& post_norm, const Tensor& y, const Tensor& x) {
  const ModelConfig& c = model_.config();
  record_sum(y);
  backend_.rms_norm({.x = y, .weight = &post_norm, .eps = c.norm_eps, .out = y});
  if (c.residual_scale != 1) backend_.scale({.x = y, .s = c.residual_scale, .out = y});
  backend_.add({.a = x, .b = y, .out = x});
}

}  // namespace inferno
