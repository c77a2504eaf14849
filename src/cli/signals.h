// What signals do to the program: INT, TERM and HUP end it without leaving temporary files, and a generation can be
// interrupted in good order first.
#pragma once

#include <atomic>

namespace inferno::cli {

// Called once, at the start. Signals that are ignored then stay ignored (nohup, jobs in the background).
void clean_up_on_signals() noexcept;

// From now on the first INT sets the flag that is returned and nothing else; a second one ends the program.
[[nodiscard]] const std::atomic<bool>& watch_interrupt() noexcept;

// Ends the program by the signal, as its default action would: a shell sees 128 + signal and ends its own loops.
[[noreturn]] void end_by(int signal) noexcept;

}  // namespace inferno::cli
