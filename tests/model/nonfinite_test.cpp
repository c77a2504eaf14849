// Models whose numbers are not numbers, or become none: an error that names the op where it began, and never a token.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/perplexity.h"
#include "gguf/gguf.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A fixture (F32 weights) with every n-th element of one tensor replaced.
class Damaged {
 public:
  Damaged(const std::string& tensor, float value, size_t every = 1) {
    std::ifstream in(fixture("qwen2-untied.gguf"), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    const GgufFile whole = file();
    const GgufTensor* found = whole.find_tensor(tensor);
    EXPECT_NE(found, nullptr) << tensor;
    if (found == nullptr) return;
    EXPECT_EQ(found->dtype, DType::f32);
    for (size_t i = 0; i < found->bytes / sizeof value; i += every) {
      std::memcpy(bytes_.data() + found->offset + i * sizeof value, &value, sizeof value);
    }
  }
  [[nodiscard]] GgufFile file() const { return GgufFile::from_memory(std::as_bytes(std::span(bytes_)), "damaged"); }

 private:
  std::string bytes_;
};

std::string error_of(const Damaged& model, const EngineOptions& options,
                     const Request& request = {.prompt = {3, 4, 5}}) {
  Engine engine(model.file(), options);
  std::string first;
  for (int i = 0; i < 2; ++i) {  // the engine is as good as before afterwards
    try {
      (void)generate(engine, request);
      return "no error";
    } catch (const Error& error) {
      if (i == 0) first = error.what();
      EXPECT_EQ(first, error.what());
    }
  }
  return first;
}

class NonFinite : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] EngineOptions options() const {
    return {.backend = GetParam(), .backend_options = {.threads = 2}, .context = 32};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, NonFinite, ::testing::Values("scalar", "simd", "parallel"));

TEST_P(NonFinite, TheFirstOpIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string intro = "the model's logits are not finite numbers: its weights are damaged or overflow";
  const std::string first = "; the first result that is not finite is ";
  EXPECT_EQ(error_of(Damaged("blk.1.ffn_down.weight", nan), options()), intro + first + "out of gated_mlp of layer 1");
  EXPECT_EQ(error_of(Damaged("blk.0.attn_q.weight", kInfinity), options()),
            intro + first + "q of qkv_rope_store of layer 0");
  EXPECT_EQ(error_of(Damaged("blk.1.attn_v.weight", nan), options()),
            intro + first + "kv of qkv_rope_store of layer 1");
  EXPECT_EQ(error_of(Damaged("token_embd.weight", nan), options()), intro + first + "out of embed");
}

// Finite weights whose products are not.
TEST_P(NonFinite, WeightsThatOverflowAreNamed) {
  EXPECT_NE(error_of(Damaged("blk.0.ffn_up.weight", 3e38F), options()).find("out of gated_mlp of layer 0"),
            std::string::npos);
}

TEST_P(NonFinite, InfiniteLogitsAreAnErrorAndNoToken) {
  for (const float temperature : {0.0F, 1.0F}) {
    Request request{.prompt = {3, 4, 5}};
    request.sampling.temperature = temperature;
    for (const float value : {3e38F, kInfinity, -kInfinity}) {
      EXPECT_NE(error_of(Damaged("output.weight", value), options(), request).find("out of logits"), std::string::npos)
          << value << " " << temperature;
    }
  }
}

TEST_P(NonFinite, TheCacheMayOverflowWhereActivationsDoNot) {
  EngineOptions half = options();
  half.kv_dtype = DType::f16;
  EXPECT_NE(error_of(Damaged("blk.0.attn_k.bias", 1e6F), half).find("kv of qkv_rope_store of layer 0"),
            std::string::npos);
  EXPECT_EQ(error_of(Damaged("blk.0.attn_k.bias", 1e6F), options()), "no error");
}

TEST_P(NonFinite, PerplexityIsAnErrorToo) {
  EngineOptions all = options();
  all.all_logits = true;
  const Damaged model("blk.1.ffn_down.weight", kInfinity);
  Engine engine(model.file(), all);
  const std::vector<int32_t> tokens(64, 3);
  try {
    (void)measure_perplexity(engine, tokens, 0);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of gated_mlp of layer 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace inferno::testing
