// SHA-256 of bytes that arrive in pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace inferno::hub {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void restart();
  void add(std::span<const std::byte> bytes);
  // 64 lower-case digits; restart() comes next.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace inferno::hub
