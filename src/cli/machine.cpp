// inferno machine: what this machine is, what runs on it, and what it can do at most.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backend/cpu/kernels/select.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/flag_names.h"
#include "profile/machine_limits.h"
#include "threading/thread_plan.h"
#include "threading/thread_pool.h"

namespace inferno::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string join(const std::vector<std::string>& parts, const char* between) {
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, between));
}

// The lowest table that has this very function: where it was written.
template <typename Field>
const char* origin_of(const KernelTable& table, Field field) {
  for (const KernelTable* candidate : available_kernels()) {
    if (field(*candidate) == field(table)) return candidate->name;
  }
  return table.name;
}

struct KernelChoice {
  std::string op;
  std::string type;  // of the weights or the cache; empty: f32 vectors
  std::string kernel;
};

std::vector<KernelChoice> kernel_choices(const KernelTable& table) {
  std::vector<KernelChoice> choices;
  for (const DTypeInfo& info : kDTypes) {
    const LinearKernel& kernel = table.linear[static_cast<size_t>(info.dtype)];
    if (kernel.name == nullptr) continue;
    choices.push_back(
        {"linear", std::string(info.name),
         fmt::format("{} (weights {}, activations {})", kernel.name, kernel.weight->name, kernel.activation->name)});
  }
  for (const DTypeInfo& info : kDTypes) {
    const AttentionKernel& kernel = table.attention[static_cast<size_t>(info.dtype)];
    if (kernel.name != nullptr) choices.push_back({"attention", std::string(info.name), kernel.name});
  }
#define VECTOR_OP(op) choices.push_back({#op, "", origin_of(table, [](const KernelTable& t) { return t.op; })})
  VECTOR_OP(add);
  VECTOR_OP(hadamard);
  VECTOR_OP(silu);
  VECTOR_OP(swiglu);
  VECTOR_OP(scale);
  VECTOR_OP(saxpy);
  VECTOR_OP(dot);
  VECTOR_OP(sum_squares);
  VECTOR_OP(rms_norm);
  VECTOR_OP(softmax);
  VECTOR_OP(rope_half_split);
  VECTOR_OP(rope_interleaved);
  VECTOR_OP(matmul);
  VECTOR_OP(merge_span);
#undef VECTOR_OP
  return choices;
}

std::string why_table() {
  const char* forced = std::getenv("INFERNO_ISA");
  std::vector<std::string> names;
  for (const KernelTable* table : available_kernels()) names.emplace_back(table->name);
  if (forced != nullptr && *forced != '\0') {
    return fmt::format("named by INFERNO_ISA; this CPU can run {}", join(names, ", "));
  }
  return fmt::format("the highest this CPU can run, of {}", join(names, ", "));
}

std::string gpu_line() {
  std::string why;
  for (const char* name : {"cuda", "metal"}) {
    try {
      return create_backend(name)->description();
    } catch (const Error& error) {
      why += fmt::format("{}{}", why.empty() ? "" : "; ", error.what());
    }
  }
  return fmt::format("none ({})", why);
}

// What waking workers and meeting at barriers costs here.
PoolStats measure_pool(const ThreadPlan& plan) {
  constexpr int kDispatches = 20000;
  constexpr int kBarriers = 20000;
  ThreadPool pool({.threads = plan.threads, .cpus = plan.cpus});
  const auto nothing = [](int, int, void*) {};
  for (int i = 0; i < kDispatches / 10; ++i) pool.dispatch(nothing, nullptr);
  pool.reset_stats();
  for (int i = 0; i < kDispatches; ++i) pool.dispatch(nothing, nullptr);
  pool.set_op(1);
  pool.dispatch(
      [](int, int, void* context) {
        for (int i = 0; i < kBarriers; ++i) static_cast<ThreadPool*>(context)->barrier();
      },
      &pool);
  return pool.stats();
}

struct MachineCommand {
  EngineFlags engine;
  bool stats = false;
  bool measure = false;
  bool json = false;

  void run() const;
};

std::string limits_text(const MachineLimits& limits) {
  std::string text = fmt::format("{} thread{}: read", limits.threads, limits.threads == 1 ? "" : "s");
  auto out = std::back_inserter(text);
  for (const ReadBandwidth& read : limits.read) {
    fmt::format_to(out, " {:.0f}", read.gb_per_s);
  }
  text += " GB/s of";
  for (const ReadBandwidth& read : limits.read) {
    fmt::format_to(out, "{} {}", &read == &limits.read.front() ? "" : ",",
                   format_bytes(static_cast<uint64_t>(read.working_set)));
  }
  fmt::format_to(out, " ({} streams per thread); multiply", limits.read.back().streams);
  for (int kind = 0; kind < kMultiplyKinds; ++kind) {
    fmt::format_to(out, "{} {} {:.0f}", kind == 0 ? "" : ",", multiply_name(static_cast<Multiply>(kind)),
                   limits.multiply[static_cast<size_t>(kind)]);
  }
  text += " GOP/s";
  if (limits.disturbed) text += " (other programs were running: measured again next time)";
  return text;
}

Json limits_json(const MachineLimits& limits) {
  Json reads = Json::array();
  for (const ReadBandwidth& read : limits.read) {
    reads.push_back({{"working_set", read.working_set}, {"gb_per_s", read.gb_per_s}, {"streams", read.streams}});
  }
  Json multiply = Json::object();
  for (int kind = 0; kind < kMultiplyKinds; ++kind) {
    multiply[std::string(multiply_name(static_cast<Multiply>(kind)))] = limits.multiply[static_cast<size_t>(kind)];
  }
  return {{"threads", limits.threads},
          {"measurements", limits.measurements},
          {"disturbed", limits.disturbed},
          {"read", reads},
          {"multiply_gop_per_s", multiply}};
}

void MachineCommand::run() const {
  const ThreadRequest request = engine.thread_request();
  const Topology topology = Topology::detect();
  const CpuLimits cpu_limits = detect_cpu_limits();
  ThreadPlan plan = plan_threads(topology, cpu_limits, request);
  for (std::string& line : plan.reasons) line = with_flags(line);
  for (std::string& line : plan.warnings) line = with_flags(line);
  const KernelTable& table = best_kernels();
  const Remeasure again = measure ? Remeasure::afresh : Remeasure::when_needed;
  std::vector<MachineLimits> limits = {machine_limits(1, again)};
  if (plan.threads > 1) limits.push_back(machine_limits(plan.threads, again));
  const std::vector<KernelChoice> choices = kernel_choices(table);
  PoolStats pool;
  if (stats) pool = measure_pool(plan);
  constexpr std::string_view kOps[] = {"dispatch", "barrier"};

  if (json) {
    Json kernels = Json::array();
    for (const KernelChoice& choice : choices) {
      kernels.push_back({{"op", choice.op}, {"type", choice.type}, {"kernel", choice.kernel}});
    }
    Json measured = Json::array();
    for (const MachineLimits& entry : limits) measured.push_back(limits_json(entry));
    Json out = {{"cpu", limits.front().cpu},
                {"features", cpu_feature_names()},
                {"kernel_table", table.name},
                {"kernel_table_reason", why_table()},
                {"kernels", kernels},
                {"packages", topology.packages},
                {"numa_nodes", topology.nodes},
                {"l3_groups", topology.l3_groups},
                {"l3_bytes", topology.l3_bytes},
                {"cores", topology.cores},
                {"cpus", topology.cpus.size()},
                {"allowed_cpus", cpu_limits.allowed},
                {"quota", nullptr},
                {"threads", plan.threads},
                {"thread_cpus", plan.cpus},
                {"threads_reasons", plan.reasons},
                {"threads_warnings", plan.warnings},
                {"limits", measured},
                {"gpu", gpu_line()}};
    if (cpu_limits.quota) out["quota"] = *cpu_limits.quota;
    if (stats) {
      out["pool"] = Json::array();
      for (const PoolOpStats& op : pool.ops) {
        out["pool"].push_back({{"op", kOps[static_cast<size_t>(std::min(op.op, 1))]},
                               {"dispatches", op.dispatches},
                               {"wake_ns", op.wake_ns},
                               {"wake_max_ns", op.wake_max_ns},
                               {"barriers", op.barriers},
                               {"barrier_wait_ns", op.barrier_wait_ns},
                               {"imbalance", op.imbalance}});
      }
    }
    write_stdout(out.dump(2) + "\n");
    return;
  }

  std::string text = fmt::format("CPU: {}\nfeatures: {}\nkernels: {} ({})\n", limits.front().cpu,
                                 join(cpu_feature_names(), " "), table.name, why_table());
  auto out = std::back_inserter(text);
  for (const KernelChoice& choice : choices) {
    if (!choice.type.empty()) fmt::format_to(out, "  {:<10} {:<5} {}\n", choice.op, choice.type, choice.kernel);
  }
  std::vector<std::string> vectors;
  for (const KernelChoice& choice : choices) {
    if (choice.type.empty()) vectors.push_back(fmt::format("{} {}", choice.op, choice.kernel));
  }
  fmt::format_to(out, "  vectors: {}\n\n{}", join(vectors, ", "), draw_thread_plan(topology, cpu_limits, plan));
  const std::string kept = machine_limits_file();
  fmt::format_to(out, "\nlimits, {} (--measure takes them anew):\n",
                 !kept.empty() && std::filesystem::exists(kept) ? "kept in " + kept : "measured now and kept nowhere");
  for (const MachineLimits& entry : limits) fmt::format_to(out, "  {}\n", limits_text(entry));
  fmt::format_to(out, "GPU: {}\n", gpu_line());
  if (stats) fmt::format_to(out, "\nthread pool, empty work:\n{}", format_pool_stats(pool, kOps));
  write_stdout(text);
}

}  // namespace

void add_machine(CLI::App& app) {
  auto command = std::make_shared<MachineCommand>();
  CLI::App* sub = app.add_subcommand("machine", "this machine: CPU, kernels, threads, limits");
  sub->add_flag("--stats", command->stats, "also run a short dispatch loop and print the thread pool's statistics");
  sub->add_flag("--measure", command->measure, "measure the limits anew instead of showing those that were kept");
  sub->add_flag("--json", command->json, "for programs");
  command->engine.add_thread_options(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace inferno::cli
