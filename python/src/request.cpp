#include "request.h"

#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "module.h"

namespace inferno::python {

Waker::Waker() {
  if (pipe(pipe_) != 0) throw Error("no descriptor is left for a pipe; close files, or raise `ulimit -n`");
  for (const int descriptor : pipe_) {
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
  }
}

Waker::~Waker() {
  for (const int descriptor : pipe_) close(descriptor);
}

std::vector<Waker::Ready> Waker::take() {
  char told = 0;
  [[maybe_unused]] const ssize_t bytes = read(pipe_[0], &told, 1);
  std::vector<std::pair<uint64_t, std::weak_ptr<TokenQueue>>> ready;
  {
    const std::scoped_lock lock(mutex_);
    told_ = false;
    ready = std::exchange(ready_, {});
  }
  std::vector<Ready> made;
  made.reserve(ready.size());
  for (auto& [request, weak] : ready) {
    const std::shared_ptr<TokenQueue> queue = weak.lock();
    Ready one{.request = request};
    if (queue != nullptr && queue->take_for(*this, one)) made.push_back(std::move(one));
  }
  return made;
}

void Waker::add(uint64_t request, std::weak_ptr<TokenQueue> queue) {
  const std::scoped_lock lock(mutex_);
  ready_.emplace_back(request, std::move(queue));
}

void Waker::tell() noexcept {
  const std::scoped_lock lock(mutex_);
  if (!told_ && !ready_.empty()) told_ = write(pipe_[1], "", 1) == 1;
}

void Outbox::add(const std::shared_ptr<Waker>& waker) {
  if (std::ranges::find(wakers_, waker) == wakers_.end()) wakers_.push_back(waker);
}

void Outbox::send() noexcept {
  for (const std::shared_ptr<Waker>& waker : wakers_) waker->tell();
  wakers_.clear();
}

bool TokenQueue::add_to_waker() {
  if (waker_ == nullptr || told_ || !(each_ || ended_)) return false;
  waker_->add(request_, weak_from_this());
  return told_ = true;
}

void TokenQueue::wake_after_step() {
  arrived_.notify_all();
  if (add_to_waker()) outbox_->add(waker_);
}

void TokenQueue::add(const TokenEvent& event) {
  const std::scoped_lock lock(mutex_);
  tokens_.push_back({.sample = event.sample,
                     .id = event.id,
                     .text = std::string(event.text),
                     .logprobs = {event.logprobs.begin(), event.logprobs.end()}});
  wake_after_step();
}

void TokenQueue::end() {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  finished_.notify_all();
  wake_after_step();
}

std::vector<Token> TokenQueue::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(tokens_, {});
}

bool TokenQueue::take_for(const Waker& waker, Waker::Ready& into) {
  const std::scoped_lock lock(mutex_);
  if (waker_.get() != &waker) return false;
  told_ = false;
  into.tokens = std::exchange(tokens_, {});
  into.ended = ended_;
  return true;
}

bool TokenQueue::has_ended() const {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

bool TokenQueue::wait(std::chrono::milliseconds time, bool until_end) const {
  std::unique_lock lock(mutex_);
  std::condition_variable& changed = until_end ? finished_ : arrived_;
  return changed.wait_for(lock, time, [&] { return ended_ || (!until_end && !tokens_.empty()); });
}

void TokenQueue::notify(std::shared_ptr<Waker> waker, uint64_t request, bool each) {
  const std::scoped_lock lock(mutex_);
  waker_ = std::move(waker);
  request_ = request;
  each_ = each;
  told_ = false;
  if ((ended_ || !tokens_.empty()) && add_to_waker()) waker_->tell();
}

Request::Request(std::shared_ptr<TokenQueue> queue, Generation generation, std::weak_ptr<Llm> llm)
    : queue_(std::move(queue)), generation_(std::move(generation)), llm_(std::move(llm)), process_(getpid()) {}

void Request::check_process() const {
  if (getpid() != process_) throw Error("this request belongs to the parent process; load the model in the child");
}

bool Request::wait_once(bool until_end) {
  constexpr std::chrono::milliseconds kBetweenSignals{50};
  const std::shared_ptr<Llm> llm = llm_.lock();  // given up with the lock, as it must be
  const Released released;
  if (queue_->wait(std::chrono::milliseconds(0), until_end)) return true;
  if (llm != nullptr && llm->step()) {
    return queue_->wait(std::chrono::milliseconds(0), until_end);
  }
  return queue_->wait(kBetweenSignals, until_end);
}

void Request::wait(bool until_end) {
  check_process();
  for (;;) {
    if (wait_once(until_end)) return;
    if (PyErr_CheckSignals() != 0) {
      nb::python_error raised;
      leave();
      throw raised;
    }
  }
}

void Request::leave() noexcept {
  cancel();
  try {
    const std::shared_ptr<Llm> llm = llm_.lock();
    const Released released;
    while (llm != nullptr && getpid() == process_ && !queue_->has_ended() && llm->step()) {
    }
  } catch (const std::exception&) {
    // In a callback of the same model: whoever steps there ends it next.
  }
}

std::vector<Token> Request::next() {
  wait(false);
  return queue_->take();
}

bool Request::has_ended() const {
  check_process();
  return queue_->has_ended();
}

void Request::notify(std::shared_ptr<Waker> waker, uint64_t request, bool each) {
  check_process();
  queue_->notify(std::move(waker), request, each);
}

GenerateResult Request::result() {
  wait(true);
  const Released released;
  return generation_.result();
}

}  // namespace inferno::python
