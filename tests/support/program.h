// Runs inferno as a shell would, and keeps what it printed and how it ended.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace inferno::testing {

struct Outcome {
  int code = -1;    // exit code, or 128 + signal
  std::string out;  // standard output
  std::string err;
  double cpu_seconds = 0;  // of its own code
};

inline std::string read_all(int fd) {
  std::string text;
  char chunk[4096];
  for (ssize_t n; (n = ::read(fd, chunk, sizeof chunk)) > 0;) text.append(chunk, static_cast<size_t>(n));
  return text;
}

struct RunOptions {
  std::string input = {};
  bool close_stdout = false;               // the reader of standard output closes it immediately
  bool close_stderr = false;               // the reader of stderr
  std::vector<int> closed = {};            // descriptors the program starts without
  std::vector<int> full = {};              // descriptors that are a full disk
  int signal = 0;                          // sent when `signal_when` says so
  std::function<bool()> signal_when = {};  // polled; empty: as soon as some output has come
  rlim_t file_size_limit = RLIM_INFINITY;
  std::vector<std::pair<std::string, std::string>> environment = {};
};

namespace detail {

[[noreturn]] inline void become(const std::string& path, std::vector<std::string> args, const RunOptions& options) {
  if (options.file_size_limit != RLIM_INFINITY) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{options.file_size_limit, options.file_size_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  for (const int fd : options.full) ::dup2(::open("/dev/full", O_RDWR), fd);
  ::closefrom(3);
  for (const int fd : options.closed) ::close(fd);
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace detail

inline Outcome run(const std::vector<std::string>& args, const RunOptions& options = {},
                   const std::string& program = "inferno") {
  int in[2], out[2], err[2];
  EXPECT_EQ(::pipe2(in, O_CLOEXEC) | ::pipe2(out, O_CLOEXEC) | ::pipe2(err, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    // A path, or the name of a program of this build.
    detail::become(program.starts_with('/') ? program : std::string(INFERNO_BINARY_DIR) + "/" + program, args, options);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  (void)!::write(in[1], options.input.data(), options.input.size());
  ::close(in[1]);
  if (options.close_stdout) ::close(out[0]);
  if (options.close_stderr) ::close(err[0]);
  Outcome outcome;
  std::thread errors([&] {
    if (!options.close_stderr) outcome.err = read_all(err[0]);
  });
  if (options.signal != 0) {
    if (options.signal_when) {
      while (!options.signal_when()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      char first[64];
      const ssize_t n = ::read(out[0], first, sizeof first);
      outcome.out.assign(first, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    }
    ::kill(child, options.signal);
  }
  if (!options.close_stdout) outcome.out += read_all(out[0]);
  errors.join();
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  outcome.cpu_seconds = static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) * 1e-6;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (!options.close_stdout) ::close(out[0]);
  if (!options.close_stderr) ::close(err[0]);
  return outcome;
}

// Without the progress of loading, which a busy machine shows before anything else.
inline std::string after_progress(const std::string& text) {
  std::string_view rest = text;
  while (rest.starts_with("loading: ") && rest.find('\n') != rest.npos) rest.remove_prefix(rest.find('\n') + 1);
  return std::string(rest);
}

// One line on stderr that begins like an error, and the exit code.
inline void expect_error(const Outcome& outcome, int code, const std::string& needle) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  const std::string error = after_progress(outcome.err);
  EXPECT_TRUE(error.starts_with("inferno: error: ")) << outcome.err;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(needle), std::string::npos) << outcome.err;
}

// A test with a folder of its own.
class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inferno_cli_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  std::filesystem::path folder_;
};

}  // namespace inferno::testing
