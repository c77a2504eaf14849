#include "cli/ranks.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "comm/rank_failure.h"
#include "comm/world.h"
#include "engine/ranks.h"

namespace inferno::cli {
namespace {

constexpr size_t kLineBytes = 256;

// All ranks say good-bye: from now on they end, one after the other.
std::atomic<bool> leaving{false};

// A rank that failed cannot say good-bye to the others.
[[noreturn]] void end_failed() noexcept {
  std::_Exit(1);
}

}  // namespace

bool joined_as_follower(int& code) {
  const Launch launch = detect_launch();
  if (launch.size == 1) return false;
  try {
    join_world();
  } catch (const Error&) {
    if (launch.rank == 0) throw;
    // Rank 0 says it, and would not come to it if a launcher saw this one fail.
    code = 0;
    return true;
  }
  if (world().is_leader()) return false;
  set_log_sink([](LogLevel /*level*/, std::string_view /*text*/) {});
  if (!follow_leader(world())) {
    if (may_report_failure()) report_error(world().failure());
    end_failed();
  }
  leaving.store(true);
  world().transport()->close();
  code = 0;
  return true;
}

void leave_ranks() noexcept {
  Communicator& ranks = world();
  if (ranks.size() == 1 || !ranks.is_leader()) return;
  dismiss_followers(ranks);
  if (ranks.failed()) end_failed();
  leaving.store(true);
  ranks.transport()->close();
}

void check_ranks() {
  world().check();
  char line[kLineBytes];
  if (describe_dead_rank(line, sizeof line) > 0) throw RankFailure(line);
}

bool may_tell() noexcept {
  return may_report_failure();
}

void tell_dead_rank() noexcept {
  if (leaving.load()) return;
  char line[kLineBytes];
  const size_t length = describe_dead_rank(line, sizeof line);
  if (length == 0 || !may_report_failure()) return;
  constexpr char kBegin[] = "inferno: error: ";
  (void)!::write(STDERR_FILENO, kBegin, sizeof kBegin - 1);
  line[length] = '\n';
  (void)!::write(STDERR_FILENO, line, length + 1);
}

}  // namespace inferno::cli
