#include "backend/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/op_fields.h"
#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

bool glob_matches(std::string_view glob, std::string_view text) {
  if (glob.empty()) return text.empty();
  if (glob.front() == '*') {
    for (size_t skip = 0; skip <= text.size(); ++skip) {
      if (glob_matches(glob.substr(1), text.substr(skip))) return true;
    }
    return false;
  }
  if (text.empty() || (glob.front() != '?' && glob.front() != text.front())) return false;
  return glob_matches(glob.substr(1), text.substr(1));
}

PlacementRule parse_rule(std::string_view text) {
  PlacementRule rule;
  rule.text = trim(text);
  const size_t equals = rule.text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == rule.text.size()) {
    fail_usage("\"{}\" in `backend` is not [blk.N.]OP=BACKEND, for example attention=scalar or blk.3.linear=simd",
               printable(rule.text));
  }
  std::string_view op = std::string_view(rule.text).substr(0, equals);
  rule.backend = trim(std::string_view(rule.text).substr(equals + 1));
  constexpr std::string_view kLayer = "blk.";
  if (op.starts_with(kLayer)) {
    const size_t dot = op.find('.', kLayer.size());
    const auto number = parse_int(op.substr(kLayer.size(), dot == std::string_view::npos ? dot : dot - kLayer.size()));
    if (dot == std::string_view::npos || !number || *number < 0 || *number > INT32_MAX) {
      fail_usage("\"{}\" in `backend`: a layer is written blk.N., for example blk.3.linear=simd", printable(rule.text));
    }
    rule.layer = static_cast<int>(*number);
    op.remove_prefix(dot + 1);
  }
  rule.op_glob = op;
  for (int i = 0; i < kOpCount; ++i) {
    if (glob_matches(op, op_name(static_cast<OpId>(i)))) return rule;
  }
  fail_unknown_op(op);
}

// Weights replaced by their copies on another backend that shares the memory.
class UseCopies final : public FieldVisitor {
 public:
  UseCopies(WeightCopies& copies, OpId op) : copies_(copies), op_(op) {}
  void weight(std::string_view /*name*/, const Weight*& w) override {
    if (w != nullptr) w = copies_.get(w, op_);
  }

 private:
  WeightCopies& copies_;
  OpId op_;
};

// Rows of activations of a matrix product; of other ops as many as there can be.
int64_t product_rows(const OpRecord& record) {
  switch (record.op()) {
    case OpId::logits:
      return record.args<LogitsArgs>().rows.elements();
    case OpId::linear:
      return record.args<LinearArgs>().x.rows();
    case OpId::qkv_rope_store:
      return record.args<QkvRopeStoreArgs>().x.rows();
    case OpId::gated_mlp:
      return record.args<GatedMlpArgs>().x.rows();
    case OpId::moe_mlp:
      return record.args<MoeMlpArgs>().x.rows();
    case OpId::layer_input:
      return record.args<LayerInputArgs>().x.rows();
    case OpId::latent_store:
      return record.args<LatentStoreArgs>().heads.rows();
    case OpId::head_linear:
      return record.args<HeadLinearArgs>().x.rows();
    default:
      return INT64_MAX;
  }
}

}  // namespace

bool PlacementRule::matches(OpId op, int in_layer) const {
  return (!layer || *layer == in_layer) && glob_matches(op_glob, op_name(op));
}

const std::string& PlacementSpec::choice(OpId op, int layer) const {
  const auto found =
      std::find_if(rules.rbegin(), rules.rend(), [&](const PlacementRule& rule) { return rule.matches(op, layer); });
  return found == rules.rend() ? backend : found->backend;
}

PlacementSpec parse_placement(std::string_view text) {
  PlacementSpec spec;
  size_t comma = text.find(',');
  spec.backend = trim(text.substr(0, comma));
  while (comma != std::string_view::npos) {
    text.remove_prefix(comma + 1);
    comma = text.find(',');
    spec.rules.push_back(parse_rule(text.substr(0, comma)));
  }
  return spec;
}

void require_matches(const PlacementSpec& spec, const std::vector<OpRecord>& step) {
  for (const PlacementRule& rule : spec.rules) {
    int layer = kNoLayer;
    const bool matched = std::any_of(step.begin(), step.end(), [&](const OpRecord& record) {
      layer = layer_of(record).value_or(layer);
      return rule.matches(record.op(), layer);
    });
    if (!matched) fail_usage("no op of this model matches \"{}\" in `backend`", printable(rule.text));
  }
}

PlacementBackend::PlacementBackend(std::unique_ptr<Backend> main, PlacementSpec spec,
                                   std::map<std::string, std::unique_ptr<Backend>> others)
    : BackendDecorator(std::move(main)), spec_(std::move(spec)) {
  for (auto& [name, backend] : others) others_.emplace(name, std::move(backend));
  current_ = &inner();
}

std::string PlacementBackend::description() const {
  std::string text = BackendDecorator::description();
  for (const PlacementRule& rule : spec_.rules) text += fmt::format(", {}", rule.text);
  return text;
}

void PlacementBackend::join_ranks() {
  inner().join_ranks();
  for (auto& [name, other] : others_) other.backend->join_ranks();
}

void PlacementBackend::switch_to(Backend* next) {
  if (current_ == next) return;
  current_->synchronize();
  current_ = next;
}

void PlacementBackend::begin_step(StepMode mode) {
  in_step_ = true;
  planning_ = mode == StepMode::plan;
  layer_ = kNoLayer;
  group_.clear();
  inner().begin_step(mode);
  for (auto& [name, other] : others_) {
    if (is_beside(other)) other.backend->begin_step(mode);
  }
}

void PlacementBackend::end_step() {
  INFERNO_CHECK(group_.empty());
  switch_to(&inner());
  inner().end_step();
  for (auto& [name, other] : others_) {
    if (is_beside(other)) other.backend->end_step();
  }
  in_step_ = false;
  if (planning_) {
    require_matches(spec_, planned_);
    planned_.clear();
  } else if (timing_) {
    collect_times();
  }
  planning_ = false;
}

bool PlacementBackend::is_wide(const OpRecord& record) const {
  const std::string& name = spec_.choice(record.op(), layer_of(record).value_or(kNoLayer));
  return name == spec_.backend ? inner().is_wide(record) : others_.find(name)->second.backend->is_wide(record);
}

void PlacementBackend::synchronize() {
  switch_to(&inner());
  inner().synchronize();
}

void PlacementBackend::download(void* host, const void* source, size_t bytes) {
  switch_to(&inner());
  inner().download(host, source, bytes);
}

void PlacementBackend::upload(void* destination, const void* host, size_t bytes) {
  switch_to(&inner());
  inner().upload(destination, host, bytes);
}

void PlacementBackend::copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) {
  switch_to(&inner());
  inner().copy_cache(layer, destination, source, bytes);
}

void PlacementBackend::set_timing(bool on) {
  timing_ = on;
  inner().set_timing(on);
  for (auto& [name, other] : others_) other.backend->set_timing(on);
}

// The steps of all backends as one: their ops in the order they began, each a hand-over of its own.
void PlacementBackend::collect_times() {
  std::vector<const StepTimes*> parts = {inner().step_times()};
  for (const auto& [name, other] : others_) parts.push_back(other.backend->step_times());
  std::erase_if(parts, [](const StepTimes* times) { return times == nullptr; });
  times_.clear();
  if (parts.empty()) return;
  times_.ticks_per_us = parts[0]->ticks_per_us;
  times_.begin = parts[0]->begin;
  times_.end = parts[0]->end;
  times_.workers = 1;
  struct At {
    const StepTimes* times;
    size_t op;
  };
  std::vector<At> order;
  for (const StepTimes* part : parts) {
    times_.workers = std::max(times_.workers, part->workers);
    for (size_t i = 0; i < part->ops.size(); ++i) order.push_back({part, i});
  }
  std::sort(order.begin(), order.end(),
            [](const At& a, const At& b) { return a.times->time(a.op, 0).begin < b.times->time(b.op, 0).begin; });
  for (const At& at : order) {
    times_.dispatches.push_back(times_.ops.size());
    times_.ops.push_back(at.times->ops[at.op]);
    times_.fused.push_back(at.times->fused[at.op]);
    for (int w = 0; w < times_.workers; ++w) {
      WorkerTime time = at.times->time(at.op, std::min(w, at.times->workers - 1));
      if (w >= at.times->workers) time = {time.begin, time.end, time.end - time.begin};  // it only waits
      times_.times.push_back(time);
    }
  }
}

void PlacementBackend::run_beside(Other& other, const OpRecord& record) {
  OpRecord copy = record;
  UseCopies use(other.weights, record.op());
  visit_fields(copy, use);
  if (!planning_) switch_to(other.backend.get());
  call_op(*other.backend, copy);
  if (!in_step_) other.backend->synchronize();
}

void PlacementBackend::run_apart(Other& other, const OpRecord& record) {
  if (planning_) {
    OpRecord copy = record;
    UseCopies use(other.weights, record.op());
    visit_fields(copy, use);
    return;
  }
  OpImage image = OpImage::capture(inner(), {&record, 1});
  PlacedOp placed(image, *other.backend, other.weights);
  placed.run();
  placed.download(image);
  image.replace_written(inner());
}

PlacementBackend::Place PlacementBackend::place_of(const OpRecord& record) {
  layer_ = layer_of(record).value_or(layer_);
  const std::string& name = spec_.choice(record.op(), layer_);
  if (name == spec_.backend) return {};
  Other& other = others_.find(name)->second;
  const bool beside = is_beside(other);
  if (!beside && cpu_numerics() && product_rows(record) < other.backend->min_offload_rows()) return {};
  return {&other, beside};
}

void PlacementBackend::run(std::span<OpRecord> group) {
  std::array<Place, OpGroup::kMaxOps> places;
  for (size_t i = 0; i < group.size(); ++i) places[i] = place_of(group[i]);
  for (size_t i = 0; i < group.size(); ++i) {
    if (i + 1 < group.size() && !(places[i].beside && places[i] == places[i + 1])) make_public(group[i]);
    if (planning_) planned_.push_back(group[i]);
    if (places[i].other == nullptr) {
      switch_to(&inner());
      call_op(inner(), group[i]);
    } else if (places[i].beside) {
      run_beside(*places[i].other, group[i]);
    } else {
      run_apart(*places[i].other, group[i]);
    }
  }
}

template <typename Args>
void PlacementBackend::collect(const Args& args) {
  if (!group_.add(args)) return;
  // Ops of default bodies come while the group runs, and are groups of their own.
  OpGroup group = group_;
  group_.clear();
  run(group.ops());
}

#define OP(name, Args)                            \
  void PlacementBackend::name(const Args& args) { \
    collect(args);                                \
  }
#include "backend/op_list.inc"

}  // namespace inferno
