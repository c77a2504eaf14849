#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "profile/profile.h"

namespace inferno {
namespace {

// Names of ops in the line of losses.
std::string loss_name(OpId op) {
  switch (op) {
    case OpId::rms_norm:
    case OpId::layer_norm:
      return "norms";
    case OpId::sample:
      return "sampling";
    default:
      return std::string(op_name(op));
  }
}

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::vector<OpId> by_time(const PhaseTotals& totals) {
  std::vector<OpId> ops;
  for (int i = 0; i < kOpCount; ++i) {
    if (totals.ops[static_cast<size_t>(i)].calls > 0) ops.push_back(static_cast<OpId>(i));
  }
  std::sort(ops.begin(), ops.end(), [&](OpId a, OpId b) {
    return totals.ops[static_cast<size_t>(a)].total_us > totals.ops[static_cast<size_t>(b)].total_us;
  });
  return ops;
}

}  // namespace

Profile::Profile(Backend& backend)
    : Profile(fmt::format("{} ({})", backend.name(), backend.description()), limits_of(backend)) {}

std::vector<Profile::Loss> Profile::losses(const PhaseTotals& totals) const {
  const double wall = totals.wall_us();
  std::vector<Loss> losses;
  double waits = 0;
  double wakes = 0;
  for (int i = 0; i < kOpCount; ++i) {
    const OpTotals& op = totals.ops[static_cast<size_t>(i)];
    waits += op.wait_us - op.wake_us;
    wakes += op.wake_us;
    losses.push_back({loss_name(static_cast<OpId>(i)), (op.work_us - op.least_us) / wall});
  }
  losses.push_back({"barriers", waits / wall});
  losses.push_back({"wake-ups", wakes / wall});
  losses.push_back({"profiler", totals.own_us / wall});
  losses.push_back({"idle", (totals.step_us + totals.between_us - totals.ops_us()) / wall});
  std::sort(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.share > b.share; });
  return losses;
}

std::string Profile::speed_of_light(Phase phase) const {
  const PhaseTotals& totals = phases_[static_cast<size_t>(phase)];
  if (totals.steps == 0) return "";
  constexpr double kShown = 0.005;  // smaller losses are noise
  const double wall = totals.wall_us();
  std::string lost;
  for (const Loss& loss : losses(totals)) {
    if (loss.share >= kShown)
      lost += fmt::format("{}{} {:.0f} %", lost.empty() ? "" : ", ", loss.name, 100 * loss.share);
  }
  const double speed = static_cast<double>(totals.tokens) / wall * 1e6;
  if (!limits_.known()) {
    return fmt::format("{} {:.1f} tok/s; no limits of this device are known", phase_name(phase), speed);
  }
  // Single tokens are bound by reading the weights, prompts by multiplying.
  std::string limit;
  if (phase == Phase::decode) {
    limit = fmt::format("{:.0f} GB/s", totals.stream_bytes / totals.stream_us / 1e3);
  } else {
    double operations = 0;
    for (const OpTotals& op : totals.ops) operations += op.operations;
    limit = fmt::format("{:.0f} GOP/s", operations / totals.least_us() / 1e3);
  }
  return fmt::format("{} {:.1f} tok/s = {:.0f} % of what {} allows; lost: {}", phase_name(phase), speed,
                     percent(totals.least_us(), wall), limit, lost.empty() ? "nothing" : lost);
}

std::string Profile::table(Phase phase) const {
  const PhaseTotals& totals = phases_[static_cast<size_t>(phase)];
  if (totals.steps == 0) return "";
  const double wall = totals.wall_us();
  std::string text = fmt::format("\n{}: {} tokens in {} steps, {:.1f} ms\n", phase_name(phase), totals.tokens,
                                 totals.steps, wall / 1e3);
  text += fmt::format("  {:<22}{:>8}{:>11}{:>8}{:>11}{:>8}{:>9}{:>9}{:>10}{:>8}{:>9}\n", "op", "calls", "total ms",
                      "share", "mean us", "GB/s", "GOP/s", "% limit", "barrier %", "wake %", "imbal %");
  for (const OpId id : by_time(totals)) {
    const OpTotals& op = totals.ops[static_cast<size_t>(id)];
    text += fmt::format("  {:<22}{:>8}{:>11.2f}{:>7.1f}%{:>11.1f}{:>8.1f}{:>9.1f}{:>9.0f}{:>10.1f}{:>8.1f}{:>9.1f}\n",
                        op_name(id), op.calls, op.total_us / 1e3, percent(op.total_us, wall),
                        op.total_us / static_cast<double>(op.calls), op.bytes / op.total_us / 1e3,
                        op.operations / op.total_us / 1e3, percent(op.least_us, op.total_us),
                        percent(op.wait_us - op.wake_us, op.total_us), percent(op.wake_us, op.total_us),
                        percent(op.most_us - op.work_us, op.most_us));
  }
  const double outside = totals.step_us - totals.ops_us();
  text += fmt::format("  {:<22}{:>19.2f}{:>7.1f}%   dispatch\n", "(in steps)", outside / 1e3, percent(outside, wall));
  text += fmt::format("  {:<22}{:>19.2f}{:>7.1f}%   between steps\n", "(host)", totals.between_us / 1e3,
                      percent(totals.between_us, wall));
  text += fmt::format("  {:<22}{:>19.2f}{:>7.1f}%   measuring\n", "(profiler)", totals.own_us / 1e3,
                      percent(totals.own_us, wall));
  if (totals.replays > 0) {
    const double replay = totals.replay_us / static_cast<double>(totals.replays);
    text += fmt::format("  replayed from a graph, untimed, a step takes {:.1f} us = {:.1f} tok/s\n", replay,
                        static_cast<double>(totals.tokens) / static_cast<double>(totals.steps) / replay * 1e6);
  }
  return text;
}

std::string Profile::report() const {
  std::string text = fmt::format("profile: {}, {} worker{}", backend_, workers_, workers_ == 1 ? "" : "s");
  if (limits_.known()) {
    text += fmt::format("; limits {:.1f} GB/s read, {:.0f} GOP/s int8", limits_.read.back().gb_per_s,
                        limits_.multiply_gop_per_s(Multiply::int8));
  }
  text += '\n';
  for (const Phase phase : {Phase::prefill, Phase::decode}) text += table(phase);
  const PhaseTotals& decode = this->phase(Phase::decode);
  const PhaseTotals& shown = decode.steps > 0 ? decode : this->phase(Phase::prefill);
  if (shown.steps > 0 && !shown.layer_us.empty()) {
    constexpr size_t kPerLine = 10;
    text += fmt::format("\nlayers of a {} step, us (outside of them {:.1f}):\n",
                        decode.steps > 0 ? "decode" : "prefill", shown.outside_us / static_cast<double>(shown.steps));
    for (size_t i = 0; i < shown.layer_us.size(); ++i) {
      if (i % kPerLine == 0) text += fmt::format("{}  {:>3}:", i == 0 ? "" : "\n", i);
      text += fmt::format("{:>9.1f}", shown.layer_us[i] / static_cast<double>(shown.steps));
    }
    text += '\n';
  }
  text += '\n';
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const std::string line = speed_of_light(phase);
    if (!line.empty()) text += line + "\n";
  }
  return text;
}

ProfiledPhase Profile::data(Phase phase) const {
  const PhaseTotals& totals = this->phase(phase);
  const double wall = totals.wall_us();
  ProfiledPhase out{.phase = std::string(phase_name(phase)),
                    .tokens = totals.tokens,
                    .steps = totals.steps,
                    .step_us = totals.step_us,
                    .between_us = totals.between_us,
                    .profiler_us = totals.own_us,
                    .tokens_per_second = static_cast<double>(totals.tokens) / wall * 1e6,
                    .least_us = totals.least_us(),
                    .share_of_limit = totals.least_us() / wall,
                    .stream_bytes = totals.stream_bytes,
                    .summary = speed_of_light(phase),
                    .layer_us = totals.layer_us,
                    .outside_layers_us = totals.outside_us};
  if (totals.replays > 0) out.replay_us_per_step = totals.replay_us / static_cast<double>(totals.replays);
  for (const Loss& loss : losses(totals)) {
    if (loss.share > 0) out.lost.emplace_back(loss.name, loss.share);
  }
  for (const OpId id : by_time(totals)) {
    const OpTotals& op = totals.ops[static_cast<size_t>(id)];
    out.ops.push_back({.op = std::string(op_name(id)),
                       .calls = op.calls,
                       .total_us = op.total_us,
                       .work_us = op.work_us,
                       .barrier_us = op.wait_us - op.wake_us,
                       .wake_us = op.wake_us,
                       .slowest_us = op.most_us,
                       .least_us = op.least_us,
                       .bytes = op.bytes,
                       .operations = op.operations});
  }
  return out;
}

ProfileReport Profile::data() const {
  ProfileReport out{.backend = backend_, .workers = workers_, .most_of_limit = most_of_limit(), .text = report()};
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    if (this->phase(phase).steps > 0) out.phases.push_back(data(phase));
  }
  return out;
}

std::string Profile::json() const {
  using Json = nlohmann::ordered_json;
  Json json;
  json["backend"] = backend_;
  json["workers"] = workers_;
  json["limits"] = {{"cpu", limits_.cpu}, {"threads", limits_.threads}};
  for (const ReadBandwidth& read : limits_.read) {
    json["limits"]["read"].push_back({{"working_set_bytes", read.working_set}, {"gb_per_s", read.gb_per_s}});
  }
  for (int kind = 0; kind < kMultiplyKinds; ++kind) {
    json["limits"]["multiply_gop_per_s"][std::string(multiply_name(static_cast<Multiply>(kind)))] =
        limits_.multiply_gop_per_s(static_cast<Multiply>(kind));
  }
  for (const ProfiledPhase& phase : data().phases) {
    Json& out = json[phase.phase];
    out["tokens"] = phase.tokens;
    out["steps"] = phase.steps;
    out["step_us"] = phase.step_us;
    out["between_us"] = phase.between_us;
    out["profiler_us"] = phase.profiler_us;
    if (phase.replay_us_per_step) out["replay_us_per_step"] = *phase.replay_us_per_step;
    out["tokens_per_second"] = phase.tokens_per_second;
    out["least_us"] = phase.least_us;
    out["share_of_limit"] = phase.share_of_limit;
    out["stream_bytes"] = phase.stream_bytes;
    out["speed_of_light"] = phase.summary;
    for (const auto& [name, share] : phase.lost) out["lost"][name] = share;
    for (const ProfiledOp& op : phase.ops) {
      out["ops"].push_back({{"op", op.op},
                            {"calls", op.calls},
                            {"total_us", op.total_us},
                            {"work_us", op.work_us},
                            {"barrier_us", op.barrier_us},
                            {"wake_us", op.wake_us},
                            {"slowest_us", op.slowest_us},
                            {"least_us", op.least_us},
                            {"bytes", op.bytes},
                            {"operations", op.operations}});
    }
    out["layer_us"] = phase.layer_us;
    out["outside_layers_us"] = phase.outside_layers_us;
  }
  return json.dump(1) + "\n";
}

}  // namespace inferno
