#include "backend/tracing.h"

#include <gtest/gtest.h>

#include <regex>

#include "backend/factory.h"
#include "backend/op_image.h"
#include "backend/op_print.h"

namespace inferno {
namespace {

std::vector<std::string> trace_linear(bool fused) {
  std::vector<std::string> lines;
  TracingBackend backend(create_backend("scalar", {.fused = fused}),
                         [&](const std::string& line) { lines.push_back(line); });
  OpImage image;
  LinearArgs args{.x = image.tensor({1, 64})};
  args.w[0] = image.weight("w", DType::q8_0, Shape(3, 64), std::vector<std::byte>(3 * 68), 7);
  args.out[0] = image.tensor({1, 3});
  image.add(args);
  WeightCopies weights(backend);
  PlacedOp placed(image, backend, weights);
  EXPECT_TRUE(lines.empty()) << "planning prints nothing";
  placed.run();
  return lines;
}

TEST(Tracing, PrintsBackendOpArgumentsTimeStepAndLayer) {
  const std::vector<std::string> lines = trace_linear(true);
  ASSERT_EQ(lines.size(), 1U);
  const std::regex form(R"(\[SCALAR\] \[linear\] \(x=f32\[1,64\], w=q8_0\[3,64\]\) \d+\.\d+(us|ms) step \d+ layer 7)");
  EXPECT_TRUE(std::regex_match(lines[0], form)) << lines[0];
}

TEST(Tracing, PrimitivesOfADefaultBodyStandOneLevelDeeper) {
  const std::vector<std::string> lines = trace_linear(false);
  ASSERT_GT(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("-> [SCALAR] [gather_rows] (table=q8_0[3,64]) ")) << lines[0];
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with("-> [") && lines[i].find("-> ", 3) == std::string::npos) << lines[i];
  }
  EXPECT_TRUE(lines.back().starts_with("[SCALAR] [linear] (x=")) << lines.back();
}

TEST(Tracing, TimesAreMicrosecondsBelowAMillisecond) {
  EXPECT_EQ(format_time(82.44), "82.4us");
  EXPECT_EQ(format_time(0.04), "0.0us");
  EXPECT_EQ(format_time(1000), "1.000ms");
  EXPECT_EQ(format_time(1234567), "1234.567ms");
}

}  // namespace
}  // namespace inferno
