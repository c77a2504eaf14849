#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/platform.h"

namespace inferno {
namespace {

// The most one read or write transfers: some kernels refuse larger requests.
constexpr size_t kMaxTransfer = size_t{1} << 30;

std::string directory_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The temporary files there are, where a signal handler can read them. More at once than there is room for, or longer
// names, are not listed and would stay after a signal.
struct ListedFile {
  enum State : uint8_t { unused, changing, listed };
  std::atomic<State> state{unused};
  char path[PATH_MAX];
};
constinit std::array<ListedFile, 8> listed_files{};

void list_temporary(const std::string& path) {
  if (path.size() >= PATH_MAX) return;
  for (ListedFile& file : listed_files) {
    ListedFile::State expected = ListedFile::unused;
    if (!file.state.compare_exchange_strong(expected, ListedFile::changing, std::memory_order_acquire)) continue;
    std::memcpy(file.path, path.c_str(), path.size() + 1);
    file.state.store(ListedFile::listed, std::memory_order_release);
    return;
  }
}

void unlist_temporary(const std::string& path) {
  for (ListedFile& file : listed_files) {
    if (file.state.load(std::memory_order_acquire) == ListedFile::listed && path == file.path) {
      file.state.store(ListedFile::unused, std::memory_order_release);
    }
  }
}

}  // namespace

void remove_temporary_files() noexcept {
  for (const ListedFile& file : listed_files) {
    if (file.state.load(std::memory_order_acquire) == ListedFile::listed) ::unlink(file.path);
  }
}

InputFile::InputFile(const std::string& path) : path_(path) {
  // Opening a pipe nobody writes to would wait forever; for a regular file the flag means nothing.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("cannot open \"{}\": {}", path, std::strerror(errno));
  struct stat status{};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const bool directory = S_ISDIR(status.st_mode);
    ::close(fd_);
    fail("\"{}\" is {}, not a regular file", path, directory ? "a directory" : "a device or pipe");
  }
  size_ = static_cast<uint64_t>(status.st_size);
  platform::hint_read_once(fd_, size_);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), std::min(out.size(), kMaxTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read \"{}\" at byte {}: {}", path_, offset, std::strerror(errno));
    if (got == 0) fail("\"{}\" ends at byte {} but more is needed: the file is truncated", path_, offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

AtomicOutputFile::AtomicOutputFile(const std::string& path) : path_(path) {
  struct stat status{};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists) {
    if (S_ISDIR(status.st_mode)) fail("cannot write \"{}\": it is a directory", path);
    if (!S_ISREG(status.st_mode)) {  // nothing to keep whole, and a rename would destroy the device
      fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd_ < 0) fail("cannot write \"{}\": {}", path, std::strerror(errno));
      return;
    }
  }
  temporary_ = path + ".XXXXXX";
  {
    const BlockSignals whole;  // a signal must not find the file before it is listed
    fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
    if (fd_ >= 0) list_temporary(temporary_);
  }
  if (fd_ < 0) fail("cannot write \"{}\": {}", path, std::strerror(errno));
  // mkostemp creates private files; give the result the permissions of the file it replaces, or of a plain open.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  (void)::fchmod(fd_, exists ? status.st_mode & 0777 : 0666 & ~mask);
}

AtomicOutputFile::~AtomicOutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  unlist_temporary(temporary_);
}

void AtomicOutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write \"{}\": {} (nothing was changed)", path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(put));
    position_ += static_cast<uint64_t>(put);
  }
}

void AtomicOutputFile::skip(uint64_t bytes) {
  position_ += bytes;
  const auto end = static_cast<off_t>(position_);
  if (::ftruncate(fd_, end) == 0 && ::lseek(fd_, end, SEEK_SET) == end) return;
  fail("cannot write \"{}\": {} (nothing was changed)", path_, std::strerror(errno));
}

void AtomicOutputFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot write \"{}\": {}", path_, std::strerror(errno));
    return;
  }
  if (::fsync(fd_) != 0) fail("cannot write \"{}\": {} (nothing was changed)", path_, std::strerror(errno));
  if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    unlist_temporary(temporary_);
    fail("cannot write \"{}\": {} (nothing was changed)", path_, std::strerror(error));
  }
  unlist_temporary(temporary_);
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_CLOEXEC);
  if (directory >= 0) {
    (void)::fsync(directory);
    ::close(directory);
  }
}

std::string read_text(const std::string& path, uint64_t limit) {
  const bool standard_input = path == "-";
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const char* name = standard_input ? "standard input" : path.c_str();
  if (fd < 0) fail("cannot open \"{}\": {}", name, std::strerror(errno));
  std::string text;
  int error = 0;
  for (;;) {
    char chunk[65536];
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(chunk, static_cast<size_t>(got));
    if (text.size() > limit) break;
  }
  if (!standard_input) ::close(fd);
  if (error != 0) fail("cannot read \"{}\": {}", name, std::strerror(error));
  if (text.size() > limit) fail("\"{}\" is longer than {} bytes, the most that is read", name, limit);
  return text;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first{};
  struct stat second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace inferno
