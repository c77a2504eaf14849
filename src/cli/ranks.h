// The program as one of several ranks (docs/scale.md): rank 0 does what the command says, the others follow it.
#pragma once

namespace inferno::cli {

// Joins the other ranks, where a launcher started any. True: this is not rank 0, and `code` is what to exit with.
[[nodiscard]] bool joined_as_follower(int& code);
// At the end of rank 0, whatever its exit code: lets the others end.
void leave_ranks() noexcept;

// An Error that names the rank that has ended, if one has.
void check_ranks();
// Whether this rank is to say that one has ended: one of them does, once.
[[nodiscard]] bool may_tell() noexcept;
// In a signal handler: launchers end a program by a signal when one of its ranks has ended.
void tell_dead_rank() noexcept;

}  // namespace inferno::cli
