// Progress of long work: a bar that redraws itself on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace inferno {

// Draws on stderr; silent when constructed with quiet. Work shorter than about half a second draws nothing.
class Progress {
 public:
  Progress(std::string label, uint64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(uint64_t amount);

 private:
  void draw(bool last);

  std::string label_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_;
};

}  // namespace inferno
