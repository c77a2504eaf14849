#include "serve/log_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <vector>

namespace inferno::serve {
namespace {

TEST(LogWriter, WritesAllLinesInOrderBeforeItEnds) {
  std::vector<std::string> written;
  {
    LogWriter log([&](const std::string& line) { written.push_back(line); });
    for (int i = 0; i < 100; ++i) log.add(std::to_string(i));
  }
  ASSERT_EQ(written.size(), 100U);
  EXPECT_EQ(written[0], "0");
  EXPECT_EQ(written[99], "99");
}

TEST(LogWriter, NobodyWaitsForALogThatStandsStillAndWhatIsDroppedIsCounted) {
  std::promise<void> go;
  std::shared_future<void> may_go(go.get_future());
  std::vector<std::string> written;
  {
    LogWriter log(
        [&](const std::string& line) {
          may_go.wait();
          written.push_back(line);
        },
        100);
    for (int i = 0; i < 1000; ++i) log.add("0123456789");  // returns, all of them
    go.set_value();
  }
  ASSERT_EQ(written.size(), 11U) << "ten lines fit";
  EXPECT_EQ(std::ranges::count(written, "990 lines of the log were dropped: it is read too slowly"), 1);
}

TEST(LogWriter, ALogThatCannotBeWrittenHindersNobody) {
  LogWriter log([](const std::string&) { throw std::runtime_error("no space left"); });
  log.add("a");
  log.add("b");
}

}  // namespace
}  // namespace inferno::serve
