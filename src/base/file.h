// Files: reads at offsets, and atomic writes that never leave half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace inferno {

// A regular file opened for reading; anything else, a pipe for example, is an Error. All failures are Errors
// that name the file. Movable, not copyable; read_at may be called from several threads concurrently.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  // Fills all of `out` from `offset`; reading past the end is an Error.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Writes to a temporary file next to `path`; commit() syncs it and renames it over `path`. Without commit (an error, a
// crash, a full disk) the old file stays as it was and the temporary file is removed. A device or pipe is written to
// directly. A signal handler that ends the program calls remove_temporary_files() first.
class AtomicOutputFile {
 public:
  explicit AtomicOutputFile(const std::string& path);
  ~AtomicOutputFile();
  AtomicOutputFile(const AtomicOutputFile&) = delete;
  AtomicOutputFile& operator=(const AtomicOutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Zeros that take no space, where the file system can do that.
  void skip(uint64_t bytes);
  [[nodiscard]] uint64_t position() const { return position_; }
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  uint64_t position_ = 0;
};

// Removes the temporary files of all AtomicOutputFiles of this process, which is about to end. For signal handlers:
// takes no lock and allocates nothing.
void remove_temporary_files() noexcept;

// Whole text file, or standard input for "-"; an Error when it is longer than `limit` bytes.
[[nodiscard]] std::string read_text(const std::string& path, uint64_t limit);
// True when both paths name the same existing file.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

}  // namespace inferno
