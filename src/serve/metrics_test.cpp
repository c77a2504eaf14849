#include "serve/metrics.h"

#include <gtest/gtest.h>

namespace inferno::serve {
namespace {

TEST(Metrics, BucketsOfAHistogramCountAllBelowThem) {
  Histogram first;
  first.add(0.004);
  first.add(0.005);
  Histogram all;
  all.add(1e9);
  all.add(first);
  std::string text;
  all.write(text, "h", "Help.");
  EXPECT_NE(text.find("# TYPE h histogram\n"), std::string::npos);
  EXPECT_NE(text.find("h_bucket{le=\"0.002\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("h_bucket{le=\"0.005\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("h_bucket{le=\"300\"} 2\nh_bucket{le=\"+Inf\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("h_count 3\n"), std::string::npos);
}

TEST(Metrics, AnswersAreCountedByPathAndStatus) {
  Metrics metrics;
  metrics.answers[{"/health", 200}] = 3;
  EXPECT_NE(metrics.text({}, {}).find("inferno_requests_total{path=\"/health\",status=\"200\"} 3\n"),
            std::string::npos);
}

}  // namespace
}  // namespace inferno::serve
