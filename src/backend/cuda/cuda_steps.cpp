// The steps of the CUDA backend: recording, launching, graphs, times.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/error.h"
#include "backend/device/same_op.h"
#include "base/error.h"

namespace inferno::cuda {
namespace {

// Graphs kept: one per number of sequences that is being decoded, and a few more.
constexpr size_t kMaxGraphs = 64;
// Larger steps run long enough to hide their launches, and seldom repeat.
constexpr int32_t kMaxGraphTokens = 256;

// Whether these ops are a model's step, and a small one.
bool may_capture(const std::vector<OpRecord>& ops) {
  int32_t tokens = 0;
  for (const OpRecord& op : ops) {
    op.visit([&](const auto& args) {
      if constexpr (requires { args.batch.tokens; }) tokens = args.batch.tokens;
    });
    if (tokens != 0) break;
  }
  return tokens != 0 && tokens <= kMaxGraphTokens;
}

// Whether running these ops twice is not the same as running them once.
bool changes_state(const std::vector<OpRecord>& ops) {
  return std::any_of(ops.begin(), ops.end(), [](const OpRecord& op) {
    return op.op() == OpId::short_conv || op.op() == OpId::delta_net || op.op() == OpId::mamba2;
  });
}

// "linear", or of several: "one of embed, attention (INFERNO_CUDA_SYNC=1 tells which)".
std::string names_of(const std::bitset<kOpCount>& ops) {
  std::string names;
  for (int i = 0; i < kOpCount; ++i) {
    if (ops[static_cast<size_t>(i)])
      names += fmt::format("{}{}", names.empty() ? "" : ", ", op_name(static_cast<OpId>(i)));
  }
  return ops.count() > 1 ? fmt::format("one of {} (INFERNO_CUDA_SYNC=1 tells which)", names) : names;
}

}  // namespace

// ---- steps

void CudaBackend::begin_step(StepMode mode) {
  INFERNO_CHECK(!in_step_);
  use_device();
  times_.clear();
  stamped_ = 0;
  replayed_ = false;
  in_step_ = true;
  planning_ = mode == StepMode::plan;
  const auto last = std::max_element(graphs_.begin(), graphs_.end(),
                                     [](const Graph& a, const Graph& b) { return a.last_use < b.last_use; });
  replay_candidate_ = planning_ || timing_ || last == graphs_.end() ? nullptr : &*last;
  step_.begin(replay_candidate_ == nullptr ? nullptr : &replay_candidate_->ops);
}

void CudaBackend::end_step() {
  use_device();
  const auto end = [this] {
    step_.begin();
    replay_candidate_ = nullptr;
    in_step_ = false;
    planning_ = false;
  };
  try {
    execute();
  } catch (const std::exception& error) {
    end();
    // The others are in the middle of this step, and cannot follow another one.
    if (ranks_ != nullptr && ranks_->size() > 1 && ranks_->is_leader()) ranks_->give_up(error.what());
    throw;
  }
  end();
}

void CudaBackend::synchronize() {
  use_device();
  execute();
  flush_uploads();
  wait();
}

void CudaBackend::wait() {
  if (exchange_ != nullptr && exchange_->runs_on_device()) {
    const auto began = RankExchange::Clock::now();
    while (cudaStreamQuery(context_.stream) == cudaErrorNotReady) exchange_->look(began);
  }
  const cudaError_t status = cudaStreamSynchronize(context_.stream);
  if (status == cudaSuccess) {
    transfers_->on_stream_idle();
    return;
  }
  fail("cuda: {} failed: {}", in_flight_.any() ? names_of(in_flight_) : "a copy", cudaGetErrorString(status));
}

void CudaBackend::settle() noexcept {
  try {
    use_device();
    wait();
  } catch (...) {
    (void)cudaGetLastError();
  }
}

void CudaBackend::wait_for_delivery() {
  // The count arrives a few microseconds before the stream reports completion. A failed kernel never sends it.
  constexpr uint32_t kPollsPerQuery = 1U << 14;
  for (uint32_t polls = 1; !transfers_->delivered(); ++polls) {
    if (polls % kPollsPerQuery != 0) continue;
    // Others may keep the device from ending.
    if (cudaStreamQuery(context_.stream) == cudaErrorNotReady && exchange_ == nullptr) continue;
    wait();
    return;
  }
  transfers_->on_stream_idle();
}

template <typename Args>
void CudaBackend::record(const Args& args) {
  if (planning_) {
    OpRecord op;
    op.assign(args);
    if (!supports(op)) {
      const std::string lacking = OpRunner::lacks(op);
      fail("backend \"cuda\" has no kernel for {}{}{}, which this model needs; choose another backend",
           op_name(op.op()), lacking.empty() ? "" : " with ", lacking);
    }
    // The exchange of logits reads what was uploaded.
    if (op.op() == OpId::all_gather) synchronize();
    ops_->reserve(op);
    return;
  }
  step_.record(args);
  if (in_step_) return;
  use_device();
  execute();
}

void CudaBackend::execute() {
  if (step_.empty()) return;
  const bool timed = timing_ && in_step_;
  Graph* graph = replay_candidate_;
  if (!step_.repeats() || graph->uploads != transfers_->staged() || graphs_frees_ != frees_->value) {
    graph = graph_for_plan(step_.ops());
  }
  if (timed && changes_state(step_.ops())) graph = nullptr;  // a timed step runs as a graph and op by op
  replay_candidate_ = nullptr;
  delivered_ = {};
  if (graph != nullptr) {
    launch(*graph, timed);
  } else {
    flush_uploads();
    in_flight_.reset();
    for (const OpRecord& op : step_.ops()) in_flight_.set(static_cast<size_t>(op.op()));
  }
  last_seen_ = nullptr;
  if (graph == nullptr || timed) launch_ops(timed);
  if (graph == nullptr && may_capture(step_.ops())) remember_plan();
  step_.begin();
}

void CudaBackend::launch(Graph& graph, bool timed) {
  in_flight_ = graph.kinds;
  graph.last_use = ++uses_;
  if (timed) {
    for (cudaEvent_t& event : replay_stamps_) {
      if (event == nullptr) check(cudaEventCreate(&event), "creating an event");
    }
    check(cudaEventRecord(replay_stamps_[0], context_.stream), "taking the time");
  }
  check(cudaGraphLaunch(graph.executable, context_.stream), "launching a step");
  if (timed) {
    check(cudaEventRecord(replay_stamps_[1], context_.stream), "taking the time");
    replayed_ = true;
  }
  if (!graph.uploads.empty()) transfers_->on_fetch();
  if (!graph.download.empty()) {
    transfers_->on_deliver();
    // Ops that run once more for their times would still be writing.
    if (!timed) delivered_ = graph.download;
  }
}

void CudaBackend::launch_ops(bool timed, bool after_fetch) {
  const std::vector<OpRecord>& plan = step_.ops();
  ops_->start_chain();
  if (after_fetch) ops_->continue_chain();
  if (timed && stamped_ == 0) record_timestamp();
  for (size_t i = 0; i < plan.size();) {
    const std::string_view op = op_name(plan[i].op());
    const size_t launched = ops_->run(std::span(plan).subspan(i, sync_each_op_ ? 1 : plan.size() - i));
    check(cudaGetLastError(), op);
    if (sync_each_op_) check(cudaStreamSynchronize(context_.stream), op);
    for (size_t j = 0; timed && j < launched; ++j) {
      record_timestamp();
      times_.ops.push_back(plan[i + j]);
      times_.fused.push_back(j > 0 || ops_->took_private() ? 1 : 0);
    }
    i += launched;
  }
}

// ---- times

void CudaBackend::set_timing(bool on) {
  timing_ = on;
  times_.clear();
  stamped_ = 0;
}

void CudaBackend::record_timestamp() {
  if (stamped_ == stamps_.size()) {
    stamps_.emplace_back();
    check(cudaEventCreate(&stamps_.back()), "creating an event");
  }
  check(cudaEventRecord(stamps_[stamped_++], context_.stream), "taking the time");
}

const StepTimes* CudaBackend::step_times() const {
  if (times_.ops.empty()) return nullptr;
  check(cudaEventSynchronize(stamps_[stamped_ - 1]), "taking the time");
  times_.times.clear();
  times_.replay_us = 0;
  if (replayed_) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, replay_stamps_[0], replay_stamps_[1]), "taking the time");
    times_.replay_us = static_cast<double>(ms) * 1e3;
  }
  times_.begin = 0;
  uint64_t at = 0;
  for (size_t i = 0; i < times_.ops.size(); ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, stamps_[0], stamps_[i + 1]), "taking the time");
    const auto end = static_cast<uint64_t>(static_cast<double>(ms) * 1e3 * times_.ticks_per_us);
    times_.times.push_back({.begin = at, .end = end});
    at = end;
  }
  times_.end = at;
  times_.dispatches.assign(1, 0);
  return &times_;
}

// ---- graphs

bool CudaBackend::captures_nothing() const {
  if (sync_each_op_) return true;
  // A step that is timed runs twice, which the other ranks would have to do, too.
  return exchange_ != nullptr && (!exchange_->runs_on_device() || (timing_ && ranks_->size() > 1));
}

CudaBackend::Graph* CudaBackend::graph_for_plan(const std::vector<OpRecord>& plan) {
  if (captures_nothing()) return nullptr;
  if (graphs_frees_ != frees_->value) {
    drop_graphs();
    for (SeenPlan& seen : seen_) seen.ops.clear();
    graphs_frees_ = frees_->value;  // dropping graphs may free memory
  }
  Graph* without_uploads = nullptr;
  bool uploads_vary = false;
  for (Graph& graph : graphs_) {
    if (!device::same_ops(graph.ops, plan)) continue;
    if (graph.uploads == transfers_->staged()) return &graph;
    if (graph.uploads.empty()) without_uploads = &graph;
    uploads_vary = true;
  }
  if (uploads_vary) {  // fetched apart: otherwise each kind of uploads would be a graph of its own
    flush_uploads();
    if (without_uploads != nullptr) return without_uploads;
  }
  const auto seen = std::find_if(seen_.begin(), seen_.end(),
                                 [&](const SeenPlan& earlier) { return device::same_ops(earlier.ops, plan); });
  if (seen == seen_.end()) return nullptr;
  if (graphs_.size() >= kMaxGraphs) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(),
                                         [](const Graph& a, const Graph& b) { return a.last_use < b.last_use; });
    wait();
    (void)cudaGraphExecDestroy(oldest->executable);
    graphs_.erase(oldest);
  }
  Graph graph;
  graph.ops = plan;
  graph.uploads = transfers_->staged();
  graph.download = seen->download;
  for (const OpRecord& op : plan) graph.kinds.set(static_cast<size_t>(op.op()));
  capture(graph);
  graphs_.push_back(std::move(graph));
  seen->ops.clear();
  return &graphs_.back();
}

void CudaBackend::capture(Graph& graph) {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
  try {
    LaunchContext serialized = context_;
    serialized.overlap = false;
    if (!graph.uploads.empty()) transfers_->launch_fetch(serialized);
    // Kernels read the batch before their own wait, so the first one starts after the fetch; an embedding waits for it
    // before it lets any later one start.
    launch_ops(false, !graph.uploads.empty() && graph.ops.front().op() == OpId::embed);
    if (!graph.download.empty()) transfers_->launch_deliver(context_, graph.download);
  } catch (...) {
    (void)cudaStreamEndCapture(context_.stream, &recorded);
    if (recorded != nullptr) (void)cudaGraphDestroy(recorded);
    throw;
  }
  check(cudaStreamEndCapture(context_.stream, &recorded), "capturing a step");
  const cudaError_t status = cudaGraphInstantiate(&graph.executable, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  check(status, "capturing a step");
}

void CudaBackend::remember_plan() {
  last_seen_ = &seen_[next_seen_];
  next_seen_ = (next_seen_ + 1) % seen_.size();
  std::swap(last_seen_->ops, step_.ops());
  last_seen_->download = {};
}

void CudaBackend::drop_graphs() {
  if (graphs_.empty()) return;
  settle();
  for (Graph& graph : graphs_) (void)cudaGraphExecDestroy(graph.executable);
  graphs_.clear();
}

// ---- ops

#define PRIMITIVE(name, Args)
#define FUSED(name, Args)                    \
  void CudaBackend::name(const Args& args) { \
    record(args);                            \
  }
#include "backend/op_list.inc"

void CudaBackend::kv_store(const KvStoreArgs& args) {
  record(args);
}
void CudaBackend::add(const AddArgs& args) {
  record(args);
}

}  // namespace inferno::cuda
