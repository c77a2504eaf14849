// verify_model(), replay_dump(), verify_whole_model(): one backend against another, op by op or as whole models.
#include <fmt/core.h>

#include <algorithm>

#include "api/load_options.h"
#include "api/prompt_ids.h"
#include "backend/op_fields.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "inferno/tools.h"
#include "verify/check.h"
#include "verify/dump.h"
#include "verify/whole.h"

namespace inferno {
namespace {

constexpr std::string_view kPrompts[] = {
    "Once upon a time",          "The old man looked at the sea and", "It was a cold morning in",
    "In the middle of the wood", "\"Where are you going?\" said the", "Nobody knew why the bell",
    "The capital of France is",  "She opened the letter and read",
};

// What a dump is bound to: enough to tell models apart, without reading them.
std::string model_identity(const ModelFile& file) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < file.tensor_count(); ++i) bytes += file.tensor(i).bytes;
  const std::string* name = file.find_string("general.name");
  return fmt::format("{}, {} tensors, {} bytes", name == nullptr ? "unnamed" : printable(*name), file.tensor_count(),
                     bytes);
}

std::string name_of(const std::string& backend) {
  return backend.empty() ? std::string(default_backend_name()) : backend;
}

Numerics numerics_between(const Backend& a, const Backend& b, bool fused) {
  if (!fused) return Numerics::default_bodies;
  return a.cpu_numerics() && b.cpu_numerics() ? Numerics::cpu_kernels : Numerics::definition;
}

void check_tokens_wanted(int32_t tokens) {
  if (tokens < 0) fail_usage("`tokens` is {}, must be 0 or more", tokens);
}

OpComparison comparison_of(const OpCheck& check) {
  return {.ops = check.name(),
          .layer = check.layer,
          .step = check.step,
          .index = check.index,
          .args = check.args,
          .field = check.worst.field,
          .element = check.worst.worst,
          .reference = check.worst.worst_reference,
          .tested = check.worst.worst_tested,
          .max_abs = check.worst.max_abs,
          .max_ulp = check.worst.max_ulp,
          .nmse = check.worst.nmse,
          .limit = check.limit,
          .diverges = check.diverges(),
          .blamed = check.blamed ? std::string(op_name(*check.blamed)) : ""};
}

VerifyReport report_of(const CheckingBackend& checking) {
  VerifyReport report;
  report.checked = checking.checked();
  for (const auto& [ops, total] : checking.totals()) {
    report.ops.push_back({.ops = OpCheck{.ops = ops}.name(),
                          .calls = total.calls,
                          .diverging = total.diverging,
                          .max_abs = total.max_abs,
                          .max_ulp = total.max_ulp,
                          .max_nmse = total.max_nmse,
                          .limit = total.limit});
  }
  for (const OpCheck& check : checking.worst()) report.worst.push_back(comparison_of(check));
  if (checking.first_divergence()) report.first_divergence = comparison_of(*checking.first_divergence());
  report.text = checking.report();
  return report;
}

}  // namespace

// ---- op by op

VerifyReport verify_model(const std::string& path, const LoadOptions& load, const VerifyOptions& what) {
  check_tokens_wanted(what.tokens);
  CheckOptions check;
  if (!what.plant.empty()) check.plant = require_op(what.plant);
  EngineOptions options = engine_options(load);
  check.exchanges = options.ranks->size() > 1;
  const AnyModelFile file = open_model(path);
  std::unique_ptr<Backend> reference = create_backend(what.against, options.backend_options);
  CheckingBackend* checking = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    check.numerics = numerics_between(*backend, *reference, load.fused);
    auto made = std::make_unique<CheckingBackend>(std::move(backend), std::move(reference), check,
                                                  create_backend("scalar", {.fused = false}));
    checking = made.get();
    return made;
  };
  Engine engine(file, options);
  const std::vector<int32_t> prompt = prompt_ids(engine.tokenizer(), what.prompt);
  (void)generate(engine, {.prompt = prompt, .max_new_tokens = what.tokens, .stop_at_end = false});
  if (check.plant && !checking->has_checked(*check.plant)) {
    fail_usage("{} cannot be planted: this run never calls that op{}", what.plant,
               load.fused ? "; primitives run with `fused` off" : "");
  }
  VerifyReport report = report_of(*checking);
  report.tested = name_of(load.backend);
  report.reference = what.against;
  report.prompt_tokens = static_cast<int32_t>(prompt.size());
  if (checking->first_divergence() && !what.dump_file.empty()) {
    const DumpInfo info{.model = model_identity(file),
                        .tested = report.tested,
                        .reference = what.against,
                        .fused = load.fused,
                        .layer = checking->first_divergence()->layer};
    write_dump(what.dump_file, checking->first_image(), info);
    report.dumped = true;
  }
  return report;
}

// ---- one op out of a file

ReplayReport replay_dump(const std::string& dump_file, const std::string& against, const LoadOptions& load,
                         const std::string& path) {
  const Dump recorded = read_dump(dump_file);
  if (!path.empty()) {
    const std::string identity = model_identity(open_model(path));
    if (identity != recorded.info.model) {
      fail("\"{}\" was recorded with another model ({}), not with {} ({})", dump_file, recorded.info.model, path,
           identity);
    }
  }
  BackendOptions options = engine_options(load).backend_options;
  options.fused = recorded.info.fused && load.fused;
  ReplayReport report{.tested = load.backend.empty() ? recorded.info.tested : load.backend, .reference = against};
  std::unique_ptr<Backend> tested = create_backend(report.tested, options);
  std::unique_ptr<Backend> reference = create_backend(against, options);
  const Numerics numerics = numerics_between(*tested, *reference, options.fused);
  OpCheck check = check_image(recorded.image, std::move(tested), std::move(reference), numerics,
                              create_backend("scalar", {.fused = false}));
  check.layer = recorded.info.layer;
  report.check = comparison_of(check);
  const std::string layer = check.layer < 0 ? "" : fmt::format(" of layer {}", check.layer);
  report.text = fmt::format(
      "replay: {}{} on {} against {}\n  ({})\n  {}: max ulp {}, max abs {:.3g}, nmse {:.3g} (limit {:.3g}): {}{}\n",
      check.name(), layer, report.tested, against, check.args, check.worst.field, check.worst.max_ulp,
      check.worst.max_abs, check.worst.nmse, check.limit, check.diverges() ? "diverges" : "agrees", check.blame());
  return report;
}

// ---- whole models

WholeModelReport verify_whole_model(const std::string& path, const LoadOptions& load, const WholeModelOptions& what) {
  check_tokens_wanted(what.tokens);
  if (what.prompts < 1) fail_usage("`prompts` is {}, must be 1 or more", what.prompts);
  EngineOptions options = engine_options(load);
  const AnyModelFile file = open_model(path);
  options.all_logits = true;
  Engine a(file, options);
  options.backend = what.against;
  options.ranks = nullptr;  // the reference is whole
  if (!options.kv_dtype) options.kv_dtype = a.cache().config().dtype;
  Engine b(file, options);
  const auto vocabulary = static_cast<size_t>(a.model().config().vocabulary);
  WholeComparison comparison(a.model().config().vocabulary);
  for (int32_t i = 0; i < what.prompts; ++i) {
    const bool is_given = i == 0 || std::holds_alternative<std::vector<int32_t>>(what.prompt.content);
    const std::vector<int32_t> prompt = prompt_ids(
        a.tokenizer(), is_given ? what.prompt : Prompt(kPrompts[static_cast<size_t>(i) % std::size(kPrompts)]));
    a.check_tokens(prompt);
    Request request{.prompt = prompt, .max_new_tokens = what.tokens, .stop_at_end = false};
    const std::vector<int32_t> text_a = generate(a, request).samples.front().ids;
    const std::vector<int32_t> text_b = generate(b, request).samples.front().ids;
    // Both read the reference's text, so that every position can be compared.
    std::vector<int32_t> sequence = prompt;
    sequence.insert(sequence.end(), text_b.begin(), text_b.end());
    const auto rows = static_cast<int32_t>(
        std::min<size_t>(sequence.size(), static_cast<size_t>(a.decoder().limits().max_logit_rows)));
    sequence.resize(static_cast<size_t>(rows));
    std::vector<float> logits_a(static_cast<size_t>(rows) * vocabulary);
    std::vector<float> logits_b(logits_a.size());
    BareSequence(a).forward(0, sequence, rows);
    a.decoder().download_logits(logits_a);
    BareSequence(b).forward(0, sequence, rows);
    b.decoder().download_logits(logits_b);
    comparison.add_logits(logits_a, logits_b);
    // The last token of the prompt gives the first of the text.
    const auto known = std::min(logits_b.size(), (prompt.size() - 1) * vocabulary);
    comparison.add_texts(text_a, text_b, std::span(logits_b).subspan(known));
  }
  return {.tested = name_of(load.backend),
          .reference = what.against,
          .mean_divergence = comparison.mean_divergence(),
          .noise = comparison.noise(),
          .parting_margin = comparison.parting_margin(),
          .most_margin = comparison.most_margin(),
          .verdict = comparison.verdict(),
          .text = comparison.report()};
}

}  // namespace inferno
