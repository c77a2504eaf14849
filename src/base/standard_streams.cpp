#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace inferno {

void open_standard_streams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one, as all below it are open. The wrong direction: using it stays an error.
    (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void write_stderr(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace inferno
