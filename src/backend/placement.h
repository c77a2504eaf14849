// Per-op choice of a backend: `parallel,attention=scalar,blk.3.linear=simd`.
//
//   BACKEND{,[blk.N.]OP-GLOB=BACKEND}
//
// The first name is the main backend: it owns the memory, and runs every op that no rule names. A rule sends ops whose
// name matches the glob (* and ?), in one layer or in all, to another backend; of several that match the last counts.
// What runs where is decided while the model plans its first step: then every chosen backend loads the weights its ops
// need. A CPU backend works on the tensors of a main backend whose memory the host sees; for devices tensors and cache
// rows are copied there and back around each op, by their tags. A product of few rows is not worth that: with fewer
// than the device's min_offload_rows() it stays on a main backend that is a CPU's, whatever the rules say. Where ops of
// a group (op_group.h) run on different backends, or apart, their results are not private.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/decorator.h"
#include "backend/op_group.h"
#include "backend/op_image.h"
#include "backend/step_times.h"

namespace inferno {

struct PlacementRule {
  std::string text;          // as given
  std::optional<int> layer;  // none: all
  std::string op_glob;
  std::string backend;

  [[nodiscard]] bool matches(OpId op, int in_layer) const;
};

struct PlacementSpec {
  std::string backend;
  std::vector<PlacementRule> rules;

  // The backend's name for an op of a layer (kNoLayer: outside the layers).
  [[nodiscard]] const std::string& choice(OpId op, int layer) const;
};

// A malformed rule, or a glob that matches no op, is a usage Error that lists the known ops. Backend names are checked
// by whoever makes the backends.
[[nodiscard]] PlacementSpec parse_placement(std::string_view text);

// A rule that no op of the step matches is a usage Error.
void require_matches(const PlacementSpec& spec, const std::vector<OpRecord>& step);

class PlacementBackend final : public BackendDecorator {
 public:
  // `others` are the backends the rules name, by name.
  PlacementBackend(std::unique_ptr<Backend> main, PlacementSpec spec,
                   std::map<std::string, std::unique_ptr<Backend>> others);

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool is_wide(const OpRecord& record) const override;
  void join_ranks() override;
  // A rule that no op of the planned step matched is a usage Error.
  void begin_step(StepMode mode) override;
  void end_step() override;
  void synchronize() override;
  void download(void* host, const void* source, size_t bytes) override;
  void upload(void* destination, const void* host, size_t bytes) override;
  void copy_cache(int32_t layer, void* destination, const void* source, size_t bytes) override;
  void set_timing(bool on) override;
  [[nodiscard]] const StepTimes* step_times() const override { return timing_ ? &times_ : nullptr; }

#define OP(name, Args) void name(const Args& args) override;
#include "backend/op_list.inc"

 private:
  struct Other {
    explicit Other(std::unique_ptr<Backend> made) : backend(std::move(made)), weights(*backend) {}
    std::unique_ptr<Backend> backend;
    WeightCopies weights;
  };

  // Where an op runs: on the main backend (no other), on another in the same memory, or in memory of its own.
  struct Place {
    Other* other = nullptr;
    bool beside = true;
    bool operator==(const Place&) const = default;
  };
  template <typename Args>
  void collect(const Args& args);
  [[nodiscard]] Place place_of(const OpRecord& record);
  // Whether its ops run in the main backend's memory.
  [[nodiscard]] bool is_beside(const Other& other) const { return host_visible() && other.backend->cpu_numerics(); }
  void run(std::span<OpRecord> group);
  void run_beside(Other& other, const OpRecord& record);
  void run_apart(Other& other, const OpRecord& record);
  void switch_to(Backend* next);
  void collect_times();

  PlacementSpec spec_;
  std::map<std::string, Other, std::less<>> others_;
  std::vector<OpRecord> planned_;  // ops of the step being planned
  OpGroup group_;                  // not yet complete
  Backend* current_ = nullptr;     // whose ops were recorded last
  bool in_step_ = false;
  bool planning_ = false;
  int layer_ = kNoLayer;
  bool timing_ = false;
  StepTimes times_;
};

}  // namespace inferno
