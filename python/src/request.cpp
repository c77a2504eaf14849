#include "request.h"

#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

namespace inferno::python {

namespace nb = nanobind;

TokenQueue::~TokenQueue() {
  for (const int descriptor : pipe_) {
    if (descriptor >= 0) close(descriptor);
  }
}

void TokenQueue::wake() noexcept {
  changed_.notify_all();
  if (pipe_[1] < 0 || signalled_) return;
  const char byte = 1;
  signalled_ = write(pipe_[1], &byte, 1) == 1;
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
  if (signalled_) {
    char byte = 0;
    signalled_ = read(pipe_[0], &byte, 1) != 1;
  }
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

int TokenQueue::descriptor() {
  const std::scoped_lock lock(mutex_);
  if (pipe_[0] < 0) {
    if (pipe(pipe_) != 0) throw Error("no descriptor is left for a pipe; close files, or raise `ulimit -n`");
    for (const int descriptor : pipe_) {
      fcntl(descriptor, F_SETFD, FD_CLOEXEC);
      fcntl(descriptor, F_SETFL, O_NONBLOCK);
    }
    if (ended_ || !tokens_.empty()) wake();
  }
  return pipe_[0];
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

int Request::descriptor() {
  check_process();
  return queue_->descriptor();
}

GenerateResult Request::result() {
  wait(true);
  const nb::gil_scoped_release released;
  return generation_.result();
}

}  // namespace inferno::python
