#include "serve/models.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace inferno::serve {
namespace {

using State = ServedModel::State;
using Clock = ServedModel::Clock;

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "it failed";
  }
}

}  // namespace

Models::Models(std::vector<ModelSource> sources, const ModelsOptions& options, Post on_loop, Post on_loader)
    : options_(options), on_loop_(std::move(on_loop)), on_loader_(std::move(on_loader)) {
  if (sources.empty()) fail_usage("there is no model to serve");
  if (options_.any_name && sources.size() > 1) fail_usage("`any_model` is for one model; several have their names");
  for (ModelSource& source : sources) {
    const auto same = [&](const ServedModel& other) { return other.name == source.name; };
    if (std::ranges::any_of(all_, same))
      fail_usage("two models have the name \"{}\"; give one of them another", source.name);
    if (options_.memory > 0 && source.facts.memory_bytes > options_.memory) {
      fail_usage("the model \"{}\" needs about {}, more than the {} of `models_memory`", source.name,
                 format_bytes(source.facts.memory_bytes), format_bytes(options_.memory));
    }
    all_.emplace_back(std::move(source));
  }
}

ServedModel& Models::find(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.empty()) return all_.front();
  auto found = std::ranges::find(all_, name, &ServedModel::name);
  if (found == all_.end() && name.ends_with(kLatest)) {
    found = std::ranges::find(all_, name.substr(0, name.size() - kLatest.size()), &ServedModel::name);
  }
  if (found != all_.end()) return *found;
  if (options_.any_name) return all_.front();
  std::string names;
  for (const ServedModel& model : all_) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", model.name);
  throw ApiError(404, fmt::format("there is no model \"{}\" here; this server has {}", printable(name), names), "model",
                 "model_not_found");
}

ModelLease Models::try_lease(ServedModel& model) {
  const std::scoped_lock lock(mutex_);
  if (model.state != State::loaded || model.leaving) return {};
  ++model.users;
  model.last_used = Clock::now();
  return {*this, model};
}

void ModelLease::release() noexcept {
  if (models_ != nullptr) std::exchange(models_, nullptr)->release(*std::exchange(model_, nullptr));
}

void Models::release(ServedModel& model) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    model.last_used = Clock::now();
    if (--model.users > 0 || !wants_room_) return;
  }
  try {
    on_loop_([this] { work_on_queue(); });
  } catch (const std::exception& error) {
    // The next one that is given back has the queue go on.
    log(LogLevel::warn, "a model waits longer than it has to: {}", error.what());
  }
}

Models::Status Models::status(const ServedModel& model) const {
  const std::scoped_lock lock(mutex_);
  return {model.state, model.users, model.last_used};
}

ServedModel& Models::current() {
  const std::scoped_lock lock(mutex_);
  ServedModel* best = nullptr;
  for (ServedModel& model : all_) {
    if (model.state == State::loaded && (best == nullptr || model.last_used > best->last_used)) best = &model;
  }
  return best == nullptr ? all_.front() : *best;
}

void Models::wait_for(ServedModel& model, const std::shared_ptr<ModelWaiter>& waiter) {
  if (ModelLease lease = try_lease(model)) return waiter->on_model(std::move(lease));
  const bool waits_after_failure =
      !model.failure.empty() && !model.queued && Clock::now() < model.failed_at + options_.retry_time;
  model.waiters.push_back(waiter);
  if (waits_after_failure || cancelled_) return fail_waiters(model);
  if (!model.queued && status(model).state == State::unloaded) {
    model.queued = true;
    queue_.push_back(&model);
  }
  work_on_queue();
}

// The next thing that has to be done for the models that are waited for, unless something is being done.
void Models::work_on_queue() {
  if (busy_ || cancelled_) return;
  const auto is_unwanted = [](const ServedModel& model) {
    return std::ranges::all_of(model.waiters, [](const auto& waiter) { return waiter.expired(); });
  };
  while (!queue_.empty() && is_unwanted(*queue_.front())) {
    queue_.front()->waiters.clear();
    (void)take_next();
  }
  if (queue_.empty() || fits(*queue_.front())) {
    (void)choose_victim(false);
    if (!queue_.empty()) start_load(take_next());
  } else {
    ServedModel* victim = choose_victim(true);
    if (victim == nullptr) {
      ServedModel& next = take_next();
      next.failure = "there is no memory for it";
      next.failed_at = Clock::now();
      fail_waiters(next);
    } else if (status(*victim).users == 0) {
      start_unload(*victim);
    }
  }
  // Those that were to leave and need not any more.
  for (ServedModel& model : all_) serve_waiters(model);
}

ServedModel& Models::take_next() {
  ServedModel& next = *queue_.front();
  queue_.pop_front();
  next.queued = false;
  return next;
}

bool Models::fits(const ServedModel& model) const {
  if (options_.memory == 0) return true;
  const std::scoped_lock lock(mutex_);
  uint64_t sum = model.facts.memory_bytes;
  for (const ServedModel& other : all_) {
    if (other.state != State::unloaded) sum += other.facts.memory_bytes;
  }
  return sum <= options_.memory;
}

// Who gives way, if anybody has to. One that is in use takes no new requests from now on.
ServedModel* Models::choose_victim(bool is_needed) {
  const std::scoped_lock lock(mutex_);
  ServedModel* best = nullptr;
  for (ServedModel& model : all_) {
    model.leaving = false;
    if (model.state != State::loaded || !model.load) continue;
    const auto rank = [](const ServedModel& m) { return std::pair(m.users > 0, m.last_used); };
    if (best == nullptr || rank(model) < rank(*best)) best = &model;
  }
  wants_room_ = is_needed;
  if (is_needed && best != nullptr) best->leaving = true;
  return best;
}

void Models::start_load(ServedModel& model) {
  busy_ = true;
  {
    const std::scoped_lock lock(mutex_);
    model.state = State::loading;
  }
  on_loader_([this, &model] {
    LoadedModel loaded;
    std::string failure;
    try {
      loaded = model.load(cancelled_);
    } catch (...) {
      failure = message_of(std::current_exception());
    }
    on_loop_([this, &model, loaded = std::move(loaded), failure]() mutable {
      finish_load(model, std::move(loaded), failure);
    });
  });
}

void Models::finish_load(ServedModel& model, LoadedModel loaded, const std::string& failure) {
  busy_ = false;
  const bool is_loaded = loaded.engine != nullptr;
  {
    const std::scoped_lock lock(mutex_);
    model.state = is_loaded ? State::loaded : State::unloaded;
    model.loaded = std::move(loaded);
    model.last_used = Clock::now();
  }
  model.failure = failure;
  ++(is_loaded ? model.loads : model.failures);
  if (is_loaded) {
    serve_waiters(model);
  } else {
    model.failed_at = Clock::now();
    log(LogLevel::warn, "the model \"{}\" cannot be loaded: {}", model.name, failure);
    fail_waiters(model);
  }
  work_on_queue();
}

void Models::start_unload(ServedModel& model) {
  busy_ = true;
  LoadedModel gone;
  {
    const std::scoped_lock lock(mutex_);
    model.state = State::unloading;
    model.leaving = false;
    gone = std::exchange(model.loaded, {});
  }
  keep_stats(*gone.engine);
  on_loader_([this, &model, gone = std::move(gone)]() mutable {
    gone = {};
    on_loop_([this, &model] { finish_unload(model); });
  });
}

void Models::finish_unload(ServedModel& model) {
  busy_ = false;
  {
    const std::scoped_lock lock(mutex_);
    model.state = State::unloaded;
  }
  ++model.unloads;
  if (!model.waiters.empty()) {
    model.queued = true;
    queue_.push_back(&model);
  }
  work_on_queue();
}

void Models::unload_idle() {
  if (busy_ || options_.idle_time.count() == 0) return;
  const auto now = Clock::now();
  for (ServedModel& model : all_) {
    const Status at = status(model);
    const bool is_idle = at.state == State::loaded && at.users == 0 && now - at.last_used >= options_.idle_time;
    if (is_idle && model.load) return start_unload(model);
  }
}

void Models::serve_waiters(ServedModel& model) {
  if (model.waiters.empty()) return;
  for (const auto& weak : std::exchange(model.waiters, {})) {
    const auto waiter = weak.lock();
    if (waiter == nullptr) continue;
    if (ModelLease lease = try_lease(model)) {
      waiter->on_model(std::move(lease));
    } else {
      model.waiters.push_back(weak);
    }
  }
}

void Models::fail_waiters(ServedModel& model) {
  const ApiError error =
      cancelled_ ? ApiError(503, "the server is shutting down")
                 : ApiError(503, fmt::format("the model \"{}\" cannot be loaded: {}", model.name, model.failure),
                            "model", "model_not_loaded");
  for (const auto& weak : std::exchange(model.waiters, {})) {
    if (const auto waiter = weak.lock()) waiter->on_model_failure(error);
  }
}

}  // namespace inferno::serve
