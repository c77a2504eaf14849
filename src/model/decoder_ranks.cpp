// The parts of the decoder that a model over several ranks has: what the leader tells the others, and sums.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/decoder.h"

namespace inferno {
namespace {

// Words of a step's message: candidates, tokens of its parts, words of copies, sequences; and of each sequence: its
// first position, tokens, logit rows, pages.
constexpr int32_t kStepHead = 4;
constexpr int32_t kSequenceHead = 4;

// About the tokens whose arithmetic takes as long as reading the weights once, which every part of a step does.
constexpr double kTokensPerReading = 16;

size_t f32_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols) * sizeof(float);
}

}  // namespace

// Of n tokens in m parts p stages compute for (m + p - 1) * (1 + n / m / kTokensPerReading) readings of a stage's
// weights: least for m = sqrt((p - 1) * n / kTokensPerReading).
int32_t part_tokens(int32_t tokens, int32_t stages) {
  const auto parts = static_cast<int32_t>(std::lround(std::sqrt((stages - 1) * tokens / kTokensPerReading)));
  return (tokens + std::max(parts, 1) - 1) / std::max(parts, 1);
}

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
  if (is_split() && model_.share().has_ends()) {
    const std::span<const int32_t> begins = ranks_.vocabulary_begins;
    part_memory_ = backend_.allocate(f32_bytes(limits_.max_logit_rows, model_.share().vocabulary.count));
    begins_memory_ = backend_.allocate(begins.size_bytes());
    backend_.upload(begins_memory_.data(), begins.data(), begins.size_bytes());
  }
  if (has_stages() && model_.share().has_ends()) {
    std::vector<int32_t> ids(static_cast<size_t>(limits_.max_logit_rows));
    std::iota(ids.begin(), ids.end(), 0);
    rows_memory_ = backend_.allocate(f32_bytes(limits_.max_logit_rows, c.width));
    row_ids_memory_ = backend_.allocate(ids.size() * sizeof(int32_t));
    backend_.upload(row_ids_memory_.data(), ids.data(), ids.size() * sizeof(int32_t));
  }
  const auto has_norms = [](const LayerConfig& layer) { return layer.post_norms; };
  if (is_split() && std::ranges::any_of(c.layers, has_norms)) {
    sum_memory_ = backend_.allocate(f32_bytes(limits_.max_tokens, c.width));
  }
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
  part_tokens_ = part_tokens(batch_.tokens(), model_.share().stages);
  message_.assign({candidates, part_tokens_, static_cast<int32_t>(copies_.size()), batch_.sequences()});
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
  part_tokens_ = head[1];
  INFERNO_CHECK(part_tokens_ > 0);
  const std::span<const int32_t> copies = take(head[2]);
  for (size_t i = 0; i + 1 < copies.size(); i += 2) cache.copy_page(copies[i], copies[i + 1]);
  clear();
  for (int32_t s = 0; s < head[3]; ++s) {
    const std::span<const int32_t> sequence = take(kSequenceHead);
    const std::span<const int32_t> pages = take(sequence[3]);
    add(pages, 0, sequence[0], take(sequence[1]), sequence[2]);
  }
  execute(false);
  backend_.synchronize();
}

// Every part is a step of the backend's; its rows of x stay apart from those of other parts, and the rows for logits
// are sent after the last part: no rank waits for one that waits for it.
void Decoder::execute_parts(bool sample) {
  const Tensor x{x_memory_.data(), Shape(batch_.tokens(), model_.config().width)};
  const auto* memory = static_cast<const int32_t*>(batch_memory_.data());
  const auto upload = [&](const HostBatch& batch) {
    backend_.upload(batch_memory_.data(), batch.block().data(), batch.block().size() * sizeof(int32_t));
  };
  for (int32_t begin = 0; begin < batch_.tokens(); begin += part_tokens_) {
    take_part(begin, std::min(part_tokens_, batch_.tokens() - begin));
    upload(part_);
    backend_.begin_step(StepMode::run);
    record_layers(part_.view(memory), x.row_range(begin, part_.tokens()), part_.wanted());
    backend_.end_step();
  }
  if (batch_.logit_rows() == 0) return;
  upload(batch_);
  backend_.begin_step(StepMode::run);
  record_logits(batch_.view(memory), x, sample);
  backend_.end_step();
}

// Tokens of the step as a batch of their own: of a sequence that is cut, the cache ends with them.
void Decoder::take_part(int32_t begin, int32_t count) {
  const StepBatch step = batch_.view(batch_.block().data());
  const int32_t* wanted = std::lower_bound(step.logit_row_ids, step.logit_row_ids + step.logit_rows, begin);
  const int32_t* const end_of_wanted = step.logit_row_ids + step.logit_rows;
  part_.clear();
  for (int32_t i = begin; i < begin + count; ++i) {
    const int32_t s = step.seq_of_token[i];
    if (i == begin || s != step.seq_of_token[i - 1]) {
      const int32_t last = std::min(step.q_begin[s + 1], begin + count) - 1;
      part_.begin_sequence(step.pos[last] + 1, step.block_table + int64_t{s} * step.max_pages,
                           KvCache::pages_for(step.pos[last] + 1), step.state_slot[s]);
    }
    const bool wants_logits = wanted != end_of_wanted && *wanted == i;
    if (wants_logits) ++wanted;
    part_.add_token(step.token_ids[i], step.pos[i], step.slot[i], wants_logits);
  }
}

void Decoder::record_pass(const Tensor& x, int32_t from_stage, int32_t to_stage, const Tensor& rows) {
  backend_.pass_on({.x = x, .rows = rows, .from = rank_in(from_stage), .to = rank_in(to_stage)});
}

void Decoder::record_sum(const Tensor& x) {
  backend_.all_reduce({.x = x,
                       .wire = ranks_.wire,
                       .first_rank = rank_in(model_.share().stage) - model_.share().rank,
                       .ranks = model_.share().ranks});
}

void Decoder::record_normed_sum(const Weight& post_norm, const Tensor& y, const Tensor& x) {
  const ModelConfig& c = model_.config();
  record_sum(y);
  backend_.rms_norm({.x = y, .weight = &post_norm, .eps = c.norm_eps, .out = y});
  if (c.residual_scale != 1) backend_.scale({.x = y, .s = c.residual_scale, .out = y});
  backend_.add({.a = x, .b = y, .out = x});
}

}  // namespace inferno
