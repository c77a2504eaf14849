// What signals do to the program: INT, TERM and HUP end it without leaving temporary files, and a generation can be
// interrupted in good order first.
#pragma once

#include <atomic>

#include "inferno/llm.h"

namespace inferno::cli {

// Called once, at the start. Signals that are ignored then stay ignored (nohup, jobs in the background).
void clean_up_on_signals() noexcept;

// From now on the first INT sets the flag that is returned and nothing else; a second one ends the program.
[[nodiscard]] const std::atomic<bool>& watch_interrupt() noexcept;

// While it lives INT never ends the program: it is noted, and what the model runs is cancelled.
class InterruptGuard {
 public:
  explicit InterruptGuard(Llm& llm) noexcept;
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};
// Whether an INT was noted since the last call.
[[nodiscard]] bool take_interrupt() noexcept;

// A program that ends by a signal leaves the terminal as it is now.
void restore_terminal_at_end(int fd) noexcept;

// Ends the program by the signal, as its default action would: a shell sees 128 + signal and ends its own loops.
[[noreturn]] void end_by(int signal) noexcept;

}  // namespace inferno::cli
