// The models of a server: which there are, which are in memory, and who uses them.
//
// A request takes a lease of its model; a model with leases is never unloaded. One that is not loaded is, on a thread
// of its own, one at a time and in the order it was asked for; requests wait for it. Where the memory for all does not
// suffice, the one that was used least recently gives way, at best one without leases; otherwise new requests for it
// wait until those that run have ended and the others had their turn, so that nobody waits forever.
//
// find(), try_lease(), status() and leases may be used on any thread; everything else belongs to the event loop's.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

#include "serve/api_error.h"
#include "serve/post.h"
#include "serve/served_model.h"

namespace inferno::serve {

class Models;

// The right to use a model. Movable; ends with release() or its own end, on any thread.
class ModelLease {
 public:
  ModelLease() = default;
  ModelLease(ModelLease&& other) noexcept
      : models_(std::exchange(other.models_, nullptr)), model_(std::exchange(other.model_, nullptr)) {}
  ModelLease& operator=(ModelLease&& other) noexcept {
    release();
    models_ = std::exchange(other.models_, nullptr);
    model_ = std::exchange(other.model_, nullptr);
    return *this;
  }
  ModelLease(const ModelLease&) = delete;
  ModelLease& operator=(const ModelLease&) = delete;
  ~ModelLease() { release(); }

  explicit operator bool() const { return model_ != nullptr; }
  [[nodiscard]] const ServedModel& model() const { return *model_; }
  [[nodiscard]] Engine& engine() const { return *model_->loaded.engine; }
  void release() noexcept;

 private:
  friend class Models;
  ModelLease(Models& models, ServedModel& model) : models_(&models), model_(&model) {}

  Models* models_ = nullptr;
  ServedModel* model_ = nullptr;
};

// Who waits for a model; both functions are called on the loop, at most one of them and once.
class ModelWaiter {
 public:
  ModelWaiter() = default;
  virtual ~ModelWaiter() = default;
  ModelWaiter(const ModelWaiter&) = delete;
  ModelWaiter& operator=(const ModelWaiter&) = delete;

  virtual void on_model(ModelLease lease) = 0;
  virtual void on_model_failure(const ApiError& error) = 0;
};

struct ModelsOptions {
  uint64_t memory = 0;                         // bytes for all that are loaded; 0: no limit
  std::chrono::milliseconds idle_time{0};      // without a lease, after which one is unloaded; 0: never
  std::chrono::milliseconds retry_time{5000};  // after which a model that could not be loaded is tried again
  bool any_name = false;                       // every name is that of the only model
};

class Models {
 public:
  // An Error for none, two of one name, one that does not fit the memory, or several where any name will do.
  Models(std::vector<ModelSource> sources, const ModelsOptions& options, Post on_loop, Post on_loader);
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  // ":latest" after a name means nothing; an empty name is the first model, and with any_name so is every other. An
  // ApiError 404 for one that is not there.
  [[nodiscard]] ServedModel& find(std::string_view name);
  // Empty when it is not loaded.
  [[nodiscard]] ModelLease try_lease(ServedModel& model);

  struct Status {
    ServedModel::State state;
    int64_t users;
    ServedModel::Clock::time_point last_used;
  };
  [[nodiscard]] Status status(const ServedModel& model) const;

  // ---- the loop's
  [[nodiscard]] std::deque<ServedModel>& all() { return all_; }
  // The loaded one that was used last; the first where none is.
  [[nodiscard]] ServedModel& current();
  // Null when it is not loaded. Good until the loop goes on: only there are models unloaded.
  [[nodiscard]] static Engine* engine_of(const ServedModel& model) { return model.loaded.engine.get(); }
  void wait_for(ServedModel& model, const std::shared_ptr<ModelWaiter>& waiter);
  // Unloads one of those that nobody used for the idle time; to be called now and then.
  void unload_idle();
  [[nodiscard]] const ModelsOptions& options() const { return options_; }
  // Of all that are or were loaded; counters never fall.
  [[nodiscard]] EngineStats stats();
  [[nodiscard]] PageCounts pages();
  // What is being loaded ends soon; nothing new is.
  void refuse() { cancelled_ = true; }

 private:
  friend class ModelLease;
  void release(ServedModel& model) noexcept;
  void work_on_queue();
  [[nodiscard]] bool fits(const ServedModel& model) const;
  [[nodiscard]] ServedModel& take_next();
  [[nodiscard]] ServedModel* choose_victim(bool is_needed);
  void start_load(ServedModel& model);
  void start_unload(ServedModel& model);
  void finish_load(ServedModel& model, LoadedModel loaded, const std::string& failure);
  void finish_unload(ServedModel& model);
  void keep_stats(Engine& engine);
  void serve_waiters(ServedModel& model);
  void fail_waiters(ServedModel& model);

  ModelsOptions options_;
  Post on_loop_;
  Post on_loader_;
  std::deque<ServedModel> all_;  // in the order they were named
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> wants_room_{false};  // the queue goes on when somebody gives a lease back
  std::deque<ServedModel*> queue_;       // to be loaded
  bool busy_ = false;                    // something is loaded or unloaded now
  EngineStats past_;                     // of engines that are gone
  int64_t past_evictions_ = 0;
  mutable std::mutex mutex_;
};

}  // namespace inferno::serve
