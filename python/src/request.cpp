#include "request.h"

#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

namespace inferno::python {

namespace nb = nanobind;

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

std::optional<std::vector<uint64_t>> Waker::take() {
  std::vector<uint64_t> requests(kMost);
  const ssize_t bytes = read(pipe_[0], requests.data(), kMost * sizeof(uint64_t));
  if (bytes == static_cast<ssize_t>(kMost * sizeof(uint64_t))) return std::nullopt;
  requests.resize(bytes > 0 ? static_cast<size_t>(bytes) / sizeof(uint64_t) : 0);
  return requests;
}

bool Waker::wake(uint64_t request) noexcept {
  return write(pipe_[1], &request, sizeof request) == sizeof request;
}

void TokenQueue::wake() noexcept {
  changed_.notify_all();
  if (waker_ != nullptr && !told_) told_ = waker_->wake(request_);
}

void TokenQueue::add(const TokenEvent& event) {
  const std::scoped_lock lock(mutex_);
  tokens_.push_back({.sample = event.sample,
                     .id = event.id,
                     .text = std::string(event.text),
                     .logprobs = {event.logprobs.begin(), event.logprobs.end()}});
  wake();
}

void TokenQueue::end() noexcept {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  wake();
}

std::vector<Token> TokenQueue::take() {
  const std::scoped_lock lock(mutex_);
  told_ = false;
  return std::exchange(tokens_, {});
}

bool TokenQueue::has_ended() const {
  const std::scoped_lock lock(mutex_);
  return ended_;
}

bool TokenQueue::wait(std::chrono::milliseconds time, bool until_end) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return ended_ || (!until_end && !tokens_.empty()); });
}

void TokenQueue::notify(std::shared_ptr<Waker> waker, uint64_t request) {
  const std::scoped_lock lock(mutex_);
  waker_ = std::move(waker);
  request_ = request;
  told_ = false;
  if (ended_ || !tokens_.empty()) wake();
}

Request::Request(std::shared_ptr<TokenQueue> queue, Generation generation)
    : queue_(std::move(queue)), generation_(std::move(generation)), process_(getpid()) {}

void Request::check_process() const {
  if (getpid() != process_) throw Error("this request belongs to the parent process; load the model in the child");
}

void Request::wait(bool until_end) {
  constexpr std::chrono::milliseconds kBetweenSignals{50};
  check_process();
  for (;;) {
    bool done = false;
    {
      const nb::gil_scoped_release released;
      done = queue_->wait(kBetweenSignals, until_end);
    }
    if (done) return;
    if (PyErr_CheckSignals() != 0) {
      cancel();
      throw nb::python_error();
    }
  }
}

std::vector<Token> Request::next() {
  wait(false);
  return queue_->take();
}

std::vector<Token> Request::take() {
  check_process();
  return queue_->take();
}

bool Request::has_ended() const {
  check_process();
  return queue_->has_ended();
}

void Request::notify(std::shared_ptr<Waker> waker, uint64_t request) {
  check_process();
  queue_->notify(std::move(waker), request);
}

GenerateResult Request::result() {
  wait(true);
  const nb::gil_scoped_release released;
  return generation_.result();
}

}  // namespace inferno::python
