#include "backend/cpu/cpu_backend.h"

#include <fmt/core.h>

#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "backend/cpu/cpu_ops.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/communicator.h"

namespace inferno {
namespace {

// Ops one step may record. Fused ops: four per layer and a few around them. Default bodies record thousands of
// primitives, but those run as they are recorded (see primitive()), so they never fill the plan.
constexpr size_t kPlanCapacity = 4096;

// From this many threads on they steal chunks from each other: one of many is always late, because something else runs
// on its core or next to it. Fewer threads do so in products of this many tokens: these are bound by arithmetic, and a
// thread that runs at half of its speed for a while then costs a third more time instead of twice. Products of fewer
// tokens are bound by memory and faster as one slice a thread.
constexpr int kStealingThreads = 4;
constexpr int64_t kStealingTokens = 8;

// Tokens of an op that multiplies a layer's weights; 0 of others.
int64_t product_tokens(const OpRecord& op) {
  switch (op.op()) {
    case OpId::qkv_rope_store:
      return op.args<QkvRopeStoreArgs>().x.rows();
    case OpId::linear:
      return op.args<LinearArgs>().x.rows();
    case OpId::gated_mlp:
      return op.args<GatedMlpArgs>().x.rows();
    default:
      return 0;
  }
}

// Which part of a joined layer's shared memory is that of the op.
template <typename Args>
constexpr std::optional<size_t> layer_part() {
  if (std::is_same_v<Args, QkvRopeStoreArgs>) return 0;
  if (std::is_same_v<Args, LinearArgs>) return 1;
  if (std::is_same_v<Args, GatedMlpArgs>) return 2;
  return std::nullopt;
}

}  // namespace

CpuBackend::CpuBackend(std::string name, const KernelTable& kernels, std::unique_ptr<ThreadPool> pool, DType default_kv,
                       bool fused, Communicator* ranks)
    : name_(std::move(name)),
      kernels_(kernels),
      pool_(std::move(pool)),
      default_kv_(default_kv),
      fused_(fused),
      ranks_(ranks),
      plan_(kPlanCapacity) {
  local_.resize(static_cast<size_t>(threads()));
  if (threads() > 1) {
    joined_counts_ = std::vector<std::atomic<uint32_t>>(cpu::kJoinedCounts);
    joined_.reserve(cpu::kMaxJoinedLayers);
    for (std::vector<ChunkCounts>& set : counts_) set = std::vector<ChunkCounts>(static_cast<size_t>(threads()));
    always_steals_ = pool_->uneven() || threads() >= kStealingThreads;
  }
}

std::string CpuBackend::description() const {
  return fmt::format("{} kernels, {} thread{}", kernels_.name, threads(), threads() == 1 ? "" : "s");
}

bool CpuBackend::supports(OpId op, DType dtype) const {
  const auto type = static_cast<size_t>(dtype);
  switch (op) {
    case OpId::linear:
    case OpId::gated_mlp:
    case OpId::moe_mlp:
    case OpId::layer_input:
    case OpId::latent_store:
    case OpId::head_linear:
    case OpId::logits:
      return kernels_.linear[type].name != nullptr;
    case OpId::attention:
      return kernels_.attention[type].name != nullptr;
    case OpId::kv_store:
      return kernels_.store_row[type] != nullptr;
    default:
      return true;
  }
}

// ---- memory and weights

Buffer CpuBackend::allocate(size_t bytes) {
  AlignedMemory memory = aligned_memory(bytes);
  return {this, memory.release(), bytes};
}

// Without huge pages: a page of the cache is a few KiB in each layer, and the first touch of a huge page in every layer
// at once would hold up a step for as long as zeroing a hundred MiB takes.
Buffer CpuBackend::allocate_cache(int32_t /*layer*/, size_t bytes) {
  AlignedMemory memory = aligned_memory(bytes, PageHint::none);
  return {this, memory.release(), bytes};
}

void CpuBackend::deallocate(void* data) noexcept {
  AlignedFree()(data);
}

void CpuBackend::upload(void* destination, const void* host, size_t bytes) {
  synchronize();
  std::memcpy(destination, host, bytes);
}

void CpuBackend::download(void* host, const void* source, size_t bytes) {
  synchronize();
  std::memcpy(host, source, bytes);
}

std::unique_ptr<Weight> CpuBackend::load_weight(const WeightSource& source, WeightUse uses) {
  return std::make_unique<CpuWeight>(source, uses, kernels_, pool_.get());
}

// ---- scratch

void CpuBackend::reserve(const OpScratch& op, std::optional<size_t> layer_part) {
  OpScratch need = op;
  if (layer_part && !joined_counts_.empty()) {
    layer_shared_[*layer_part] = std::max(layer_shared_[*layer_part], round_up(op.shared, 64));
    need.shared = std::accumulate(layer_shared_.begin(), layer_shared_.end(), int64_t{0});
  }
  // A worker may start an op while it still needs its local memory of the previous one.
  need.local = round_up(op.local, 64);
  need.local += std::exchange(last_local_, need.local);
  if (need.shared > scratch_bytes_.shared) {
    shared_ = aligned_memory(static_cast<size_t>(need.shared));
    scratch_bytes_.shared = need.shared;
  }
  if (need.local > scratch_bytes_.local) {
    // At a page: a token's activations lie here, and F16 decoding loses 10 % where they lie 256 to 767 bytes above a
    // multiple of 1 KiB, which the allocator would decide by chance.
    constexpr size_t kPage = 4096;
    for (AlignedMemory& memory : local_) {
      memory = aligned_memory(static_cast<size_t>(need.local), PageHint::huge, kPage);
    }
    scratch_bytes_.local = need.local;
  }
  if (need.converted > scratch_bytes_.converted) {
    converted_ = aligned_memory(static_cast<size_t>(need.converted));
    scratch_bytes_.converted = need.converted;
  }
}

void* CpuBackend::scratch(size_t bytes) {
  const auto rounded = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
  if (arena_.empty() || arena_used_ + rounded > arena_.back().bytes) {
    arena_.push_back({aligned_memory(rounded), rounded});
    arena_used_ = 0;
  }
  void* data = arena_.back().memory.get() + arena_used_;
  arena_used_ += rounded;
  return data;
}

void CpuBackend::reset_arena() {
  if (arena_.size() > 1) {
    size_t total = 0;
    for (const Block& block : arena_) total += block.bytes;
    arena_.clear();
    arena_.push_back({aligned_memory(total), total});
  }
  arena_used_ = 0;
}

// ---- steps

void CpuBackend::begin_step(StepMode mode) {
  INFERNO_CHECK(!in_step_);
  plan_.clear();
  in_step_ = true;
  planning_ = mode == StepMode::plan;
  if (timing_) {
    times_.clear();
    times_.workers = threads();
    times_.ticks_per_us = ticks_per_microsecond();
    times_.begin = cpu_ticks();
  }
}

void CpuBackend::end_step() {
  execute();
  if (planning_) reset_arena();
  if (timing_) times_.end = cpu_ticks();
  in_step_ = false;
  planning_ = false;
  if (ranks_ != nullptr) ranks_->check();
}

void CpuBackend::synchronize() {
  execute();
}

void CpuBackend::execute() {
  if (plan_.size() == 0) return;
  if (!planning_) {
    if (timing_) {
      times_.dispatches.push_back(times_.ops.size());
      for (size_t i = 0; i < plan_.size(); ++i) times_.ops.push_back(plan_[i]);
      times_.times.resize(times_.ops.size() * static_cast<size_t>(threads()));
      times_.fused.resize(times_.ops.size());
    }
    join_layers();
    if (pool_) {
      pool_->dispatch([](int ith, int nth, void* self) { static_cast<CpuBackend*>(self)->walk(ith, nth); }, this);
    } else {
      walk(0, 1);
    }
  }
  plan_.clear();
}

// Finds the layers that run as pipelines, and zeroes what their workers count.
void CpuBackend::join_layers() {
  joined_.clear();
  if (joined_counts_.empty()) return;
  size_t used = 0;
  for (size_t i = 0; i < plan_.size();) {
    cpu::JoinedLayers joined = cpu::find_joined_layers(plan_, i, kernels_, threads());
    const size_t units = UnitCounts::size(joined.grid);
    const size_t count = units + static_cast<size_t>(joined.grid.blocks * joined.hidden_parts);
    if (joined.layers == 0 || used + count > joined_counts_.size() || joined_.size() == joined_.capacity() ||
        joined.shared_bytes > scratch_bytes_.shared || joined.local_bytes > scratch_bytes_.local) {
      ++i;
      continue;
    }
    joined.counts = joined_counts_.data() + used;
    joined.completed = joined.counts + units;
    for (size_t c = 0; c < count; ++c) joined.counts[c].store(0, std::memory_order_relaxed);
    used += count;
    joined_.push_back(joined);
    i += joined.layers * cpu::kLayerOps;
  }
}

void CpuBackend::walk(int ith, int nth) noexcept {
  Worker worker{.ith = ith,
                .nth = nth,
                .kernels = &kernels_,
                .shared = shared_.get(),
                .local = local_[static_cast<size_t>(ith)].get(),
                .pool = pool_.get(),
                .converted = converted_.get(),
                .ranks = ranks_};
  WeightPrefetcher prefetcher(plan_, worker);
  worker.prefetcher = &prefetcher;
  WorkerTime* time =
      timing_ ? times_.times.data() + times_.dispatches.back() * static_cast<size_t>(nth) + ith : nullptr;
  uint8_t* fused = timing_ && ith == 0 ? times_.fused.data() + times_.dispatches.back() : nullptr;
  size_t round = rounds_walked_;
  auto joined_layers = joined_.begin();
  for (size_t i = 0; i < plan_.size(); ++round) {
    if (nth > 1) {
      const bool steals = always_steals_ || product_tokens(plan_[i]) >= kStealingTokens;
      worker.counts = steals ? counts_[round % 2].data() : nullptr;
      // Those of the previous round, which all workers have left.
      counts_[(round + 1) % 2][static_cast<size_t>(ith)].reset();
    }
    if (joined_layers != joined_.end() && joined_layers->first_op == i) {
      const size_t ops = joined_layers->layers * cpu::kLayerOps;
      cpu::run(plan_, *joined_layers++, worker, time);
      i += ops;
      if (time != nullptr) time += ops * static_cast<size_t>(nth);
      prefetcher.enter(i);
      worker.barrier();
      continue;
    }
    prefetcher.enter(i);
    if (time != nullptr) {
      worker.wait_ticks = &time->wait;
      time->begin = cpu_ticks();
    }
    const cpu::JoinedAttention joined = cpu::joined_attention(plan_, i, worker);
    if (fused != nullptr && joined.attention != nullptr) fused[i + 1] = 1;
    if (fused != nullptr && joined.output != nullptr) fused[i + 2] = 1;
    uint64_t attention_ticks = 0;
    if (joined.attention != nullptr) {
      cpu::run(plan_[i].args<QkvRopeStoreArgs>(), joined, worker, time != nullptr ? &attention_ticks : nullptr);
    } else {
      plan_[i].visit([&](const auto& args) { cpu::run(args, worker); });
    }
    worker.input_is_converted = joined.output != nullptr;
    ++i;
    if (time != nullptr) {
      time->end = cpu_ticks() - attention_ticks;
      worker.wait_ticks = nullptr;
      time += nth;
    }
    if (joined.attention != nullptr) {
      ++i;
      // It ran in between, on each worker at other times: reported as if after the projections.
      if (time != nullptr) {
        *time = {.begin = time[-nth].end, .end = time[-nth].end + attention_ticks};
        time += nth;
      }
    }
    prefetcher.enter(i);
    worker.barrier();
  }
  // After the last barrier: all workers have read it.
  if (ith == 0) rounds_walked_ = round;
}

// ---- ops

template <typename Args>
OpScratch CpuBackend::scratch_of(const Args& args) const {
  OpScratch scratch = cpu::scratch_of(args, kernels_, threads());
  if constexpr (std::is_same_v<Args, AllReduceArgs>) {
    if (ranks_ != nullptr) {
      scratch.shared = static_cast<int64_t>(Communicator::all_reduce_bytes(
          static_cast<size_t>(args.x.elements()), args.ranks == 0 ? ranks_->size() : args.ranks));
    }
  }
  return scratch;
}

template <typename Args>
void CpuBackend::primitive(const Args& args) {
  if (!in_step_ || planning_) reserve(scratch_of(args), layer_part<Args>());
  if (planning_) return;
  plan_.record(args);
  // Inside a default body each primitive runs at once: the body reuses its temporaries, and its length has no bound.
  if (!in_step_ || depth_ > 0) execute();
}

template <typename Args>
void CpuBackend::fused(const Args& args, void (*body)(Backend&, const Args&)) {
  // A draw is no composition of primitives, nor is what ranks exchange: they have only their kernels.
  constexpr bool kNoBody = std::is_same_v<Args, SampleArgs> || std::is_same_v<Args, AllReduceArgs> ||
                           std::is_same_v<Args, AllGatherArgs> || std::is_same_v<Args, PassOnArgs>;
  if (fused_ || kNoBody) {
    primitive(args);
    return;
  }
  execute();
  if (depth_ == 0) reset_arena();
  ++depth_;
  try {
    body(outermost(), args);
  } catch (...) {
    --depth_;
    throw;
  }
  --depth_;
}

#define PRIMITIVE(name, Args)               \
  void CpuBackend::name(const Args& args) { \
    primitive(args);                        \
  }
#define FUSED(name, Args)                   \
  void CpuBackend::name(const Args& args) { \
    fused(args, fused_defaults::name);      \
  }
#include "backend/op_list.inc"

}  // namespace inferno
