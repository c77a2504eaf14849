// Any arguments, one per line: exit code 0, 1 or 2, never a crash. They run in a folder of their own that holds one
// small model, m.gguf; no argument leads out of it.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// The program's own main, under another name.
int inferno_main(int argc, char** argv);

namespace {

// Made once, in the folder for temporary files; the fuzzer's runs leave at most what their arguments name.
bool enter_folder() {
  std::string folder = (std::filesystem::temp_directory_path() / "inferno-fuzz-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return false;
  std::filesystem::copy_file(INFERNO_SOURCE_DIR "/tests/fixtures/llama.gguf", folder + "/m.gguf");
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("XDG_STATE_HOME", folder.c_str(), 1);
  ::dup2(::open("/dev/null", O_RDWR), STDIN_FILENO);  // nobody types prompts
  return ::chdir(folder.c_str()) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool entered = enter_folder();
  if (!entered || size > 4096) return 0;
  std::vector<std::string> args = {"inferno"};
  std::string text(reinterpret_cast<const char*>(data), size);
  std::ranges::replace(text, '/', '_');
  std::ranges::replace(text, '\0', '0');
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    args.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  // These measure the machine for seconds.
  if (args.size() > 1 && (args[1] == "bench" || args[1] == "machine" || args[1] == "plan")) {
    if (std::ranges::find(args, "--help") == args.end()) return 0;
  }
  // The last of a repeated option counts: no run is longer than two tokens.
  if (args.size() > 1 && (args[1] == "generate" || args[1] == "verify" || args[1] == "chat")) {
    args.insert(args.end(), {"-n", "2"});
  }
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const int code = inferno_main(static_cast<int>(args.size()), argv.data());
  if (code < 0 || code > 2) __builtin_trap();
  return 0;
}
