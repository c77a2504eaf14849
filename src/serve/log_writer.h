// Lines on their way to a log that may be slow: a thread of its own writes them, so that nobody who logs waits. Lines
// beyond the limit are dropped, and a line says how many.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace inferno::serve {

class LogWriter {
 public:
  using Sink = std::function<void(const std::string& line)>;

  // The sink is called on the thread; what it throws is ignored. max_bytes: of lines that wait.
  explicit LogWriter(Sink sink, size_t max_bytes = size_t{1} << 20);
  // Writes what waits.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // From any thread.
  void add(std::string line);

 private:
  void run();
  void write(const std::string& line) const noexcept;

  Sink sink_;
  size_t max_bytes_;
  std::mutex mutex_;  // of the next four
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
  size_t dropped_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace inferno::serve
