// Signals: the program ends by them, soon, and leaves nothing behind.
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/sanitized.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

const std::string kBuiltin = INFERNO_SOURCE_DIR "/models/tiny-books-26m.gguf";

using Signals = Folder;

// True once, that long after the first question.
std::function<bool()> after(std::chrono::milliseconds delay) {
  return
      [delay, begin = std::chrono::steady_clock::now()] { return std::chrono::steady_clock::now() - begin >= delay; };
}

// On plain loops this prompt alone takes some 30 s of a processor's time, a chunk half of one (sanitized: 5 times
// that). Time of the processor, not of the clock: a busy machine changes nothing.
TEST_F(Signals, CtrlCDuringAPromptEndsItWithinOneChunkByTheSignal) {
  std::string ids = "1";
  for (int i = 0; i < 1000; ++i) ids += ",5";
  const Outcome outcome = run({"generate", kBuiltin, "--ids", ids, "-n", "2", "--backend", "scalar"},
                              {.signal = SIGINT, .signal_when = after(std::chrono::milliseconds(600))});
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  EXPECT_LT(outcome.cpu_seconds, kSanitized ? 40 : 8);
}

TEST_F(Signals, CtrlCEndsModelGenerateByTheSignal) {
  const Outcome outcome =
      run({"--backend", "scalar", "--kv", kBuiltin, "The sea", "900"}, {.signal = SIGINT}, "model-generate");
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  EXPECT_NE(outcome.out.find("decode_tokens_per_second"), std::string::npos) << outcome.out;
}

TEST_F(Signals, TemporaryFilesGoAway) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // Takes seconds; the signal comes as soon as there is a temporary file.
    const Outcome outcome = run({"quantize", kBuiltin, path("out.gguf"), "Q2_K", "--threads", "1"},
                                {.signal = signal, .signal_when = [&] { return files() > 0; }});
    EXPECT_EQ(outcome.code, 128 + signal) << outcome.err;
    EXPECT_EQ(files(), 0) << signal;
  }
}

TEST_F(Signals, AnInterruptedGenerationKeepsItsTraceAndASecondCtrlCLeavesNothing) {
  const std::vector<std::string> args = {"generate", "-n",           "900",     "--backend",
                                         "scalar",   "--ignore-end", "--trace", path("t.json")};
  EXPECT_EQ(run(args, {.signal = SIGINT}).code, 128 + SIGINT);
  EXPECT_NO_THROW((void)read_json(path("t.json")));
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(run(args, {.signal = SIGTERM}).code, 128 + SIGTERM);
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace inferno::testing
