// Everything that clients can do wrong, and one that does all right beside them.
#pragma once

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "serve/client.h"

namespace inferno::testing {

// A body for kText.
[[nodiscard]] std::string completion(bool stream, int tokens, int seed);

// Streams, one after the other, until it is told to stop; each must come whole, and be the same every time.
class Neighbour {
 public:
  Neighbour(uint16_t port, int seed) : thread_([this, port, seed] { run(port, seed); }) {}
  ~Neighbour() { join(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  void stop() { stop_ = true; }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int streams() const { return streams_; }
  [[nodiscard]] int broken() const { return broken_; }
  // Milliseconds between two arrivals of one stream, all of them; when it has been stopped and joined.
  [[nodiscard]] const std::vector<float>& gaps() const { return gaps_; }

 private:
  void run(uint16_t port, int seed);

  std::atomic<bool> stop_{false};
  std::atomic<int> streams_{0}, broken_{0};
  std::vector<float> gaps_;
  std::thread thread_;
};

class BadClients {
 public:
  explicit BadClients(uint16_t port) : port_(port) {}

  void vanish(int count);                  // at any moment of a request
  void stay_silent(int count) const;       // after nothing, half a head or half a body
  void read_nothing(int count) const;      // of streams, until the server drops them
  void send_without_end() const;           // bodies, chunks, lines of a head
  void send_ends_of_two_opinions() const;  // what smuggles requests past a proxy
  void send_many_at_once() const;          // requests on one connection
  void send_broken_json(int count);        // and broken UTF-8
  void send_odd_numbers(size_t each);      // values in every field of every API
  void ask_too_much() const;

 private:
  uint16_t port_;
  std::mt19937 random_{7};
  size_t turn_ = 0;
};

}  // namespace inferno::testing
