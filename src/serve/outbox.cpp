#include "serve/outbox.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace inferno::serve {

void Outbox::add(Delivery delivery) {
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(delivery));
  if (looking_) return;
  on_loop_([this] { look(); });
  looking_ = true;
}

void Outbox::add_now(Delivery delivery) {
  {
    const std::scoped_lock lock(mutex_);
    if (looking_) return on_loop_([deliver = std::move(delivery)] { run(deliver); });
  }
  add(std::move(delivery));
}

void Outbox::look() noexcept {
  for (bool again = true; again;) {
    const std::vector<Delivery> deliveries = take();
    if (deliveries.empty()) return;
    again = !look_later();
    for (const Delivery& deliver : deliveries) run(deliver);
  }
}

void Outbox::run(const Delivery& deliver) noexcept try { deliver(); } catch (const std::exception& error) {
  // What it was for goes with it; the others go on.
  log(LogLevel::warn, "an answer was lost: {}", error.what());
}

std::vector<Outbox::Delivery> Outbox::take() noexcept {
  const std::scoped_lock lock(mutex_);
  looking_ = !waiting_.empty();
  return std::exchange(waiting_, {});
}

// False where there is no memory even for that.
bool Outbox::look_later() noexcept try {
  later_([this] { look(); });
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace inferno::serve
