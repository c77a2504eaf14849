#include "serve/log_writer.h"

#include <fmt/core.h>

#include <utility>

#include "base/block_signals.h"
#include "base/platform.h"

namespace inferno::serve {

LogWriter::LogWriter(Sink sink, size_t max_bytes) : sink_(std::move(sink)), max_bytes_(max_bytes) {
  const BlockSignals block;
  thread_ = std::thread([this] { run(); });
}

LogWriter::~LogWriter() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LogWriter::add(std::string line) {
  {
    const std::scoped_lock lock(mutex_);
    if (bytes_ + line.size() > max_bytes_) {
      ++dropped_;
      return;
    }
    bytes_ += line.size();
    lines_.push_back(std::move(line));
  }
  changed_.notify_one();
}

void LogWriter::write(const std::string& line) const noexcept {
  try {
    sink_(line);
  } catch (...) {
    return;  // a full disk, a closed pipe: the service goes on without its log
  }
}

void LogWriter::run() {
  platform::name_this_thread("inferno-log");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !lines_.empty() || dropped_ > 0; });
    if (lines_.empty() && dropped_ == 0) return;
    const std::deque<std::string> lines = std::exchange(lines_, {});
    lock.unlock();
    for (const std::string& line : lines) write(line);
    lock.lock();
    // Only now: what is being written still takes its room.
    for (const std::string& line : lines) bytes_ -= line.size();
    if (const size_t dropped = std::exchange(dropped_, 0); dropped > 0) {
      lock.unlock();
      write(fmt::format("{} lines of the log were dropped: it is read too slowly", dropped));
      lock.lock();
    }
  }
}

}  // namespace inferno::serve
