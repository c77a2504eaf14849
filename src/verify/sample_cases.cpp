// Rows to draw from: every setting, alone and with others, and rows in which there is little or nothing to draw.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/sampling_batch.h"
#include "verify/case_data.h"

namespace inferno {
namespace {

// One row with its request; the spans of the request are those of the other members.
struct SampleCase {
  std::string name;
  SampleRequest request;
  std::vector<int32_t> history = {};
  std::vector<LogitBias> bias = {};
  std::vector<uint32_t> allowed = {};
  void (*spoil)(float* logits, int64_t vocabulary) = nullptr;
};

SampleArgs sample_args(CaseData& d, std::span<const SampleCase> cases, int64_t vocabulary) {
  const auto rows = static_cast<int64_t>(cases.size());
  const Tensor logits = d.normals({rows, vocabulary}, 3);
  std::vector<SampleRequest> requests;
  for (int64_t r = 0; r < rows; ++r) {
    const SampleCase& c = cases[static_cast<size_t>(r)];
    requests.push_back(c.request);
    requests.back().history = c.history;
    requests.back().bias = c.bias;
    requests.back().allowed = c.allowed;
    if (c.spoil != nullptr) c.spoil(logits.f32() + r * vocabulary, vocabulary);
  }
  HostSampleBatch batch({.max_rows = static_cast<int32_t>(rows), .vocabulary = vocabulary, .max_history = 4096});
  batch.set(requests);
  std::vector<int32_t> block(batch.block().size() / sizeof(int32_t));
  std::memcpy(block.data(), batch.block().data(), batch.block().size());
  const Tensor results = d.output(Shape(static_cast<int64_t>(batch.results().size())), DType::i32);
  return batch.args(logits, d.ints(block).data, results.data);
}

std::vector<SampleCase> rows_of(int64_t vocabulary) {
  const auto some = [&](size_t count) {  // many of them more than once
    std::vector<int32_t> ids(count);
    uint64_t state = 7;
    for (int32_t& id : ids) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary / 2));
    }
    return ids;
  };
  const auto words = static_cast<size_t>(bitset_words(vocabulary));
  const auto third = [&] {
    std::vector<uint32_t> bits(words, 0x49249249U);
    bits[0] = 0;
    bits[1] = ~0U;
    return bits;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const auto last = static_cast<int32_t>(vocabulary - 1);
  return {
      {"greedy", {}},
      {"top-k", {.settings = {.temperature = 0.8F, .top_k = 40, .seed = 7}, .sample_index = 1, .position = 5}},
      {"top-p", {.settings = {.temperature = 1.2F, .top_p = 0.9F, .seed = 8}, .sample_index = 2, .position = 6}},
      {"all at once",
       {.settings = {.temperature = 1, .top_k = 20, .top_p = 0.95F, .min_p = 0.05F, .repeat_penalty = 1.3F}},
       some(9)},
      {"greedy, repetition", {.settings = {.repeat_penalty = 2}}, some(64)},
      {"temperature alone", {.settings = {.temperature = 0.7F, .seed = 9}, .position = 7}},
      {"min-p alone", {.settings = {.temperature = 1.5F, .min_p = 0.1F, .seed = 10}, .position = 8}},
      {"top-k of all", {.settings = {.temperature = 0.6F, .top_k = 1'000'000, .seed = 11}, .position = 9}},
      {"top-k of many",
       {.settings = {.temperature = 0.9F, .top_k = 50, .seed = 12}, .position = 10, .top_logprobs = 20}},
      {"top-p of nothing", {.settings = {.temperature = 1, .top_p = 0, .seed = 13}, .position = 11, .top_logprobs = 1}},
      {"presence and frequency, all of a long history",
       {.settings = {.temperature = 0.8F,
                     .top_k = 30,
                     .presence_penalty = 0.5F,
                     .frequency_penalty = -0.25F,
                     .penalty_window = -1,
                     .seed = 14},
        .position = 3000},
       some(3000)},
      {"a window of five",
       {.settings = {.repeat_penalty = 1.1F, .presence_penalty = 2, .penalty_window = 5}, .top_logprobs = 3},
       some(64)},
      {"bias and ban",
       {.settings = {.temperature = 0.5F, .seed = 15}, .position = 12, .top_logprobs = 5},
       {},
       {{3, 9.5F}, {last, 9}, {4, -infinity}, {3, 1}, {5, -100}}},
      {"mask, greedy", {.top_logprobs = 0}, {}, {}, third()},
      {"mask, bias, penalties, top-p",
       {.settings = {.temperature = 1, .top_p = 0.8F, .repeat_penalty = 1.2F, .frequency_penalty = 0.1F, .seed = 16},
        .position = 13,
        .top_logprobs = 20},
       some(200),
       {{40, 5}, {1, 50}, {41, -infinity}},
       third()},
      {"one token allowed",
       {.settings = {.temperature = 1, .top_k = 40}},
       {},
       {},
       [&] {
         std::vector<uint32_t> bits(words, 0);
         bits[static_cast<size_t>(last / 32)] = 1U << (last % 32);
         return bits;
       }()},
      {"nothing allowed", {.settings = {.temperature = 1}, .top_logprobs = 4}, {}, {}, std::vector<uint32_t>(words, 0)},
      {"nothing allowed, greedy", {}, {}, {}, std::vector<uint32_t>(words, 0)},
      {"all NaN",
       {.settings = {.temperature = 1, .top_p = 0.9F}, .top_logprobs = 4},
       {},
       {},
       {},
       [](float* x, int64_t n) { std::fill_n(x, n, std::numeric_limits<float>::quiet_NaN()); }},
      {"all NaN, greedy",
       {},
       {},
       {},
       {},
       [](float* x, int64_t n) { std::fill_n(x, n, -std::numeric_limits<float>::quiet_NaN()); }},
      {"some NaN and infinities",
       {.settings = {.temperature = 1, .top_k = 10, .seed = 17}, .top_logprobs = 20},
       {},
       {},
       {},
       [](float* x, int64_t n) {
         for (int64_t i = 0; i < n; ++i) {
           if (i % 7 != 3) x[i] = i % 2 == 0 ? NAN : -INFINITY;
         }
       }},
      {"plus infinity",
       {.settings = {.temperature = 1, .top_p = 0.9F}, .top_logprobs = 2},
       {},
       {},
       {},
       [](float* x, int64_t n) { x[n / 2] = x[n - 1] = INFINITY; }},
      {"flat",
       {.settings = {.temperature = 1, .top_p = 0.5F, .seed = 18}, .top_logprobs = 20},
       {},
       {},
       {},
       [](float* x, int64_t n) { std::fill_n(x, n, -1.0F); }},
  };
}

}  // namespace

// Alone a row is shared by all threads of a backend.
std::vector<OpCase> sample_cases() {
  std::vector<OpCase> made;
  const auto add = [&](std::string name, std::span<const SampleCase> rows, int64_t vocabulary) {
    OpCase& c = made.emplace_back();
    c.name = std::move(name) + " of " + std::to_string(vocabulary);
    CaseData data(c.image, static_cast<uint32_t>(made.size()));
    c.image.add(sample_args(data, rows, vocabulary));
  };
  for (const int64_t vocabulary : {67, 5003, 40'000}) {
    const std::vector<SampleCase> rows = rows_of(vocabulary);
    add("all rows", rows, vocabulary);
    for (const SampleCase& row : rows) add(row.name, {&row, 1}, vocabulary);
  }
  return made;
}

}  // namespace inferno
