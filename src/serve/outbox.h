// What engines have for clients, on its way to the event loop.
//
// The first of it wakes the loop, which then looks again every so often while more comes: a wake-up and a send cost
// several times what a token does, and of thousands of tokens per second each would have its own.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "serve/post.h"

namespace inferno::serve {

class Outbox {
 public:
  using Delivery = std::function<void()>;

  // on_loop runs something on the event loop; later, which is called there, runs it there some milliseconds later.
  Outbox(Post on_loop, Post later) : on_loop_(std::move(on_loop)), later_(std::move(later)) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // From any thread. Deliveries run on the loop, in their order.
  void add(Delivery delivery);
  // This one does not wait for the next look, nor for those that do.
  void add_now(Delivery delivery);

 private:
  void look() noexcept;
  static void run(const Delivery& deliver) noexcept;
  [[nodiscard]] std::vector<Delivery> take() noexcept;
  [[nodiscard]] bool look_later() noexcept;

  const Post on_loop_;
  const Post later_;
  std::mutex mutex_;
  std::vector<Delivery> waiting_;
  bool looking_ = false;  // look() will run
};

}  // namespace inferno::serve
