#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/progress.h"
#include "base/text.h"

namespace inferno {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inferno_base_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST(Checked, OverflowIsReportedNotWrapped) {
  EXPECT_EQ(checked_add(1, 2), 3U);
  EXPECT_EQ(checked_add(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 32), std::nullopt);
  EXPECT_EQ(checked_round_up(33, 32), 64U);
  EXPECT_EQ(checked_round_up(UINT64_MAX, 32), std::nullopt);
}

TEST(JsonLimits, WhatIsBeyondThemIsNamed) {
  const JsonLimits limits{.depth = 2, .values = 4, .members = 2};
  EXPECT_EQ(json_fault(R"({"a":[1,2],"b":3})", {.depth = 2, .values = 5, .members = 2}), "");
  EXPECT_EQ(json_fault("[[[]]]", limits), "is nested more than 2 deep");
  EXPECT_EQ(json_fault("[[],[],[],[]]", limits), "has more than 4 values");
  EXPECT_EQ(json_fault(R"({"a":1,"b":2,"c":3})", limits), "has an object with more than 2 members");
  EXPECT_EQ(json_fault(R"([{"a":1,"b":2},{}])", {.depth = 2, .values = 9, .members = 2}), "");
  EXPECT_EQ(json_fault("[1e999]", limits), "holds a number that is out of range");
  EXPECT_EQ(json_fault("[1,", limits), "is not valid JSON (at byte 4)");
  EXPECT_EQ(json_fault("", limits), "is not valid JSON (at byte 1)");
  EXPECT_EQ(json_fault("\"\xff\"", limits), "is not valid JSON (at byte 2)");
}

TEST(Text, PrintableNeverPassesControlBytesOrBadUtf8) {
  EXPECT_EQ(printable("a\x1b[31m\xff\n"), "a\\x1b[31m\\xff\\x0a");
  EXPECT_EQ(printable("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m"),
            "a\\xc2\\x9b31m");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(Text, Utf8RejectsOverlongSurrogateAndTooLarge) {
  EXPECT_TRUE(is_valid_utf8("\xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_valid_utf8("\xc0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xed\xa0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xf4\x90\x80\x80"));
  EXPECT_FALSE(is_valid_utf8("\xe2\x82"));
}

TEST(Text, ParseIntTakesWholeNumbersOnly) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("12x"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("99999999999999999999"), std::nullopt);
}

TEST(Text, NearestFindsTypos) {
  constexpr std::string_view kNames[] = {"scalar", "simd", "parallel"};
  EXPECT_EQ(nearest("paralel", kNames), "parallel");
  EXPECT_EQ(nearest("zzzzzz", kNames), "");
}

TEST_F(TemporaryFolder, ReadAtPastTheEndIsAnErrorThatNamesTheFile) {
  std::ofstream(path("x")) << "abc";
  const InputFile file(path("x"));
  std::byte bytes[4];
  try {
    file.read_at(0, bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path("x")), std::string::npos);
  }
}

TEST_F(TemporaryFolder, OpeningADirectoryOrNothingIsAnError) {
  EXPECT_THROW(InputFile(folder_.string()), Error);
  EXPECT_THROW(InputFile(path("absent")), Error);
}

TEST_F(TemporaryFolder, OpeningAPipeIsAnErrorAndDoesNotWait) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(InputFile(path("pipe")), Error);
}

TEST_F(TemporaryFolder, OutputToADeviceOrPipeIsWrittenThereAndReplacesNothing) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  AtomicOutputFile file(path("pipe"));
  file.write("through");
  file.commit();
  char bytes[16];
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(std::max<ssize_t>(::read(reader, bytes, sizeof bytes), 0))),
            "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(files(), 1U);
}

TEST_F(TemporaryFolder, UncommittedOutputLeavesTheOldFileAndNoTemporary) {
  std::ofstream(path("x")) << "old";
  {
    AtomicOutputFile(path("x")).write("new");
  }
  EXPECT_EQ(read_text(path("x"), 100), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(TemporaryFolder, CommittedOutputReplacesTheOldFile) {
  std::ofstream(path("x")) << "old";
  AtomicOutputFile file(path("x"));
  file.write("newer");
  file.commit();
  EXPECT_EQ(read_text(path("x"), 100), "newer");
  EXPECT_EQ(files(), 1U);
}

TEST(Log, GoesToTheSinkFromItsLevelOnAndNowhereWithoutOne) {
  std::vector<std::string> lines;
  testing::internal::CaptureStderr();
  set_log_sink({});
  log(LogLevel::warn, "before");
  set_log_sink([&](LogLevel level, std::string_view text) {
    lines.push_back(fmt::format("{} {}", static_cast<int>(level), text));
  });
  const LogLevel level = log_level();
  set_log_level(LogLevel::warn);
  log(LogLevel::info, "too low");
  log(LogLevel::warn, "{} of {}", 1, 2);
  set_log_sink({});
  set_log_level(level);
  log(LogLevel::error, "after");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines, std::vector<std::string>{"3 1 of 2"});
}

// Runs in a fresh process, which reads INFERNO_LOG for the first time.
class LogEnvironment : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void log_with(const char* value) {
    ::setenv("INFERNO_LOG", value, 1);
    log(LogLevel::info, "shown when asked for");
    std::exit(0);
  }
};

TEST_F(LogEnvironment, AsksForMessagesOnStderr) {
  EXPECT_EXIT(log_with("info"), testing::ExitedWithCode(0), "^info: shown when asked for\n$");
  EXPECT_EXIT(log_with("trace"), testing::ExitedWithCode(0), "^info: shown when asked for\n$");
  EXPECT_EXIT(log_with("warn"), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(log_with(""), testing::ExitedWithCode(0), "^$");
}

TEST_F(LogEnvironment, NonsenseCountsAsNothingUnlessTheProgramChecks) {
  EXPECT_EXIT(log_with("loud"), testing::ExitedWithCode(0), "^$");
  ::setenv("INFERNO_LOG", "loud", 1);
  EXPECT_THROW(check_log_environment(), Error);
  ::setenv("INFERNO_LOG", "debug", 1);
  EXPECT_NO_THROW(check_log_environment());
  ::unsetenv("INFERNO_LOG");
  EXPECT_NO_THROW(check_log_environment());
}

TEST(Progress, RunsFromNothingToAllAndNeverBeyond) {
  std::vector<uint64_t> done;
  const OnProgress report = [&](uint64_t now, uint64_t total) {
    EXPECT_EQ(total, 10U);
    done.push_back(now);
  };
  ProgressCounter counter(report, 10);
  counter.advance(4);
  counter.advance(UINT64_MAX);
  counter.finish();
  EXPECT_EQ(done, (std::vector<uint64_t>{0, 4, 10}));
  ProgressCounter short_one(report, 10);
  short_one.advance(1);
  short_one.finish();
  EXPECT_EQ(done.back(), 10U);
  const OnProgress nobody;
  ProgressCounter(nobody, 0).finish();
}

TEST_F(TemporaryFolder, ReadTextStopsAtItsLimit) {
  std::ofstream(path("x")) << "12345";
  EXPECT_EQ(read_text(path("x"), 5), "12345");
  EXPECT_THROW(read_text(path("x"), 4), Error);
}

TEST(CpuName, ArmCoresHaveTheNamesPeopleKnow) {
  EXPECT_EQ(platform::cpu_name_in("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\n"),
            "Arm Neoverse V1");
  EXPECT_EQ(platform::cpu_name_in("CPU implementer : 0x99\nCPU part : 0x001\n"), "implementer 0x99 part 0x001");
  EXPECT_EQ(platform::cpu_name_in("model name : Intel(R) Xeon(R)\n\nmodel name : other\n"), "Intel(R) Xeon(R)");
  EXPECT_EQ(platform::cpu_name_in(""), "");
}

TEST(Text, NumbersAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("-1.5e3"), -1500);
  for (const char* text : {"", "x", "1x", " 1", "1 ", "nan", "inf", "0x10", "1e999", "1,5", "-"}) {
    EXPECT_EQ(parse_double(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace inferno
