#include "hub/download.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hub/http.h"
#include "hub/sha256.h"

namespace inferno::hub {
namespace {

constexpr size_t kMaxInfoBytes = size_t{64} << 20;
constexpr uint64_t kGettingOn = uint64_t{1} << 20;

// Replies that no retry changes.
void check_status(long status, const ModelName& name, std::string_view what) {
  if (status == 401 || status == 403) {
    fail("the hub does not give out {} without a token that may read it: set HF_TOKEN", name.repository());
  }
  if (status == 404) fail("the hub has no {} of {}", what, name.repository());
  if (status >= 400 && status < 500 && status != 408 && status != 416 && status != 429) {
    fail("the hub refuses {} of {} (HTTP {})", what, name.repository(), status);
  }
}

std::string problem_of(const HttpResult& result) {
  return result.problem.empty() ? fmt::format("HTTP {}", result.status) : result.problem;
}

void pause(const HubOptions& options, int attempt) {
  std::this_thread::sleep_for(std::chrono::milliseconds(int64_t{options.pause_ms} << attempt));
}

// The file that a download fills: what is there already counts, is hashed first, and must be nobody else's.
class PartialFile {
 public:
  PartialFile(const std::string& path, uint64_t most) : path_(path), most_(most) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail("cannot write \"{}\": {}", path, std::strerror(errno));
    try {
      if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) fail("\"{}\" is being downloaded by another process", path);
      read_what_is_there();
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  ~PartialFile() { ::close(fd_); }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  // False, with a problem(), when there is no room or the file grows beyond what it should be.
  bool append(std::span<const std::byte> bytes) {
    if (bytes.size() > most_ - size_) {
      problem_ = "the hub sends more than the file's size";
      return false;
    }
    hash_.add(bytes);
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        problem_ = fmt::format("cannot write \"{}\": {}", path_, std::strerror(errno));
        return false;
      }
      size_ += static_cast<uint64_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return true;
  }

  void restart() {
    if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) {
      fail("cannot write \"{}\": {}", path_, std::strerror(errno));
    }
    size_ = 0;
    hash_.restart();
  }

  [[nodiscard]] std::string finish() {
    if (::fsync(fd_) != 0) fail("cannot write \"{}\": {}", path_, std::strerror(errno));
    return hash_.finish();
  }

 private:
  void read_what_is_there() {
    struct stat status{};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) fail("\"{}\" is not a file", path_);
    if (static_cast<uint64_t>(status.st_size) > most_) return restart();
    std::vector<std::byte> buffer(size_t{1} << 20);
    while (true) {
      const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("cannot read \"{}\": {}", path_, std::strerror(errno));
      if (count == 0) return;
      hash_.add(std::span(buffer).first(static_cast<size_t>(count)));
      size_ += static_cast<uint64_t>(count);
    }
  }

  std::string path_;
  uint64_t most_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string problem_;
  Sha256 hash_;
};

void make_room(const std::string& folder, uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("cannot make the folder \"{}\": {}", folder, error.message());
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (!error && space.available < bytes) {
    fail("\"{}\" has room for {}, and {} are to come: make room, or set INFERNO_MODELS to another folder", folder,
         format_bytes(space.available), format_bytes(bytes));
  }
}

// One transfer of what is missing. Returns whether all of it is there now.
bool transfer(const std::string& url, const HubFile& file, const ModelName& name, const HubOptions& options,
              PartialFile& part, const OnProgress& progress, std::string& problem) {
  const uint64_t wanted = part.size();
  bool begun = false;
  std::string thrown;
  HttpRequest request{.url = url, .token = options.token, .first_byte = wanted};
  request.on_body = [&](std::span<const std::byte> bytes, uint64_t from) {
    try {
      if (!begun && from != wanted) {
        if (from != 0) return false;  // not what was asked for
        part.restart();
      }
      begun = true;
      if (!part.append(bytes)) return false;
      if (progress) progress(part.size(), file.bytes);
      return true;
    } catch (const std::exception& error) {
      thrown = error.what();
      return false;
    }
  };
  const HttpResult result = http_get(request);
  check_status(result.status, name, file.path);
  if (!thrown.empty()) fail("{}", thrown);
  if (!part.problem().empty()) fail("{}; what is there is kept and continued next time", part.problem());
  if (result.status == 416) part.restart();
  problem = problem_of(result);
  return part.size() == file.bytes && result.complete && result.status < 300;
}

bool is_there(const HubFile& file, const std::string& path) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) != file.bytes || error) return false;
  try {
    return trim(read_text(path + ".sha256", 256)) == file.sha256;
  } catch (const Error&) {
    return false;
  }
}

void write_hash(const HubFile& file, const std::string& path) {
  AtomicOutputFile out(path + ".sha256");
  out.write(file.sha256 + "\n");
  out.commit();
}

}  // namespace

std::vector<HubFile> fetch_model_info(const ModelName& name, const HubOptions& options) {
  const std::string url = fmt::format("{}/api/models/{}?blobs=true", options.endpoint, name.repository());
  for (int attempt = 0;; ++attempt) {
    std::string body;
    HttpRequest request{.url = url, .token = options.token};
    request.on_body = [&](std::span<const std::byte> bytes, uint64_t /*from*/) {
      if (bytes.size() > kMaxInfoBytes - body.size()) return false;
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return true;
    };
    const HttpResult result = http_get(request);
    check_status(result.status, name, "model");
    if (result.complete && result.status == 200) return parse_model_info(body, name);
    if (attempt >= options.retries) {
      fail("cannot ask {} about {}: {}", options.endpoint, name.repository(), problem_of(result));
    }
    pause(options, attempt);
  }
}

void download_file(const ModelName& name, const HubFile& file, const std::string& path, const HubOptions& options,
                   const OnFile& on_file) {
  if (is_there(file, path)) return;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  // Named after the hash: what is continued is the same file.
  const std::string partial = fmt::format("{}.{}.part", path, file.sha256.substr(0, 16));
  std::error_code ignored;
  const uint64_t there = std::filesystem::exists(partial, ignored) ? std::filesystem::file_size(partial, ignored) : 0;
  make_room(folder, there < file.bytes ? file.bytes - there : 0);
  PartialFile part(partial, file.bytes);
  const OnProgress progress = on_file ? on_file(file) : OnProgress{};
  const std::string url = fmt::format("{}/{}/resolve/main/{}", options.endpoint, name.repository(), file.path);
  std::string problem;
  for (int attempt = 0; part.size() < file.bytes || file.bytes == 0;) {
    const uint64_t before = part.size();
    if (transfer(url, file, name, options, part, progress, problem)) break;
    // A line that breaks often is used as long as it gets on.
    attempt = part.size() >= before + kGettingOn ? 0 : attempt + 1;
    if (attempt > options.retries) {
      fail("{} of {} broke off at {} of {} ({}): the next try continues there", file.path, name.repository(),
           format_bytes(part.size()), format_bytes(file.bytes), problem);
    }
    pause(options, attempt);
  }
  const std::string hash = part.finish();
  if (hash != file.sha256) {
    std::filesystem::remove(partial, ignored);
    fail("{} of {} arrived with the SHA-256 {}, not {}: it was thrown away", file.path, name.repository(), hash,
         file.sha256);
  }
  std::filesystem::remove(path + ".sha256", ignored);  // of an older file
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) fail("cannot rename \"{}\": {}", partial, error.message());
  write_hash(file, path);
}

}  // namespace inferno::hub
