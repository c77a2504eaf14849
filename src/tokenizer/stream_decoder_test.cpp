#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/text.h"
#include "tokenizer/test_vocabulary.h"

namespace inferno {
namespace {

class StreamDecoderTest : public testing::Test {
 protected:
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::create(byte_vocabulary("gpt-2", {"Ã ©", "h i"}));

  // Token i < 256 of this vocabulary is byte i.
  [[nodiscard]] std::string decode(std::string_view bytes) const {
    StreamDecoder decoder(*tokenizer_);
    std::string out;
    for (const char byte : bytes) {
      decoder.push(static_cast<unsigned char>(byte), out);
      EXPECT_TRUE(is_valid_utf8(out));
    }
    decoder.finish(out);
    return out;
  }
};

TEST_F(StreamDecoderTest, WaitsForWholeCharacters) {
  StreamDecoder decoder(*tokenizer_);
  std::string out;
  decoder.push(0xE4, out);
  decoder.push(0xBD, out);
  EXPECT_EQ(out, "");
  decoder.push(0xA0, out);
  EXPECT_EQ(out, "\xE4\xBD\xA0");
  decoder.push(257, out);
  EXPECT_EQ(out, "\xE4\xBD\xA0hi");
  decoder.push(256, out);
  EXPECT_EQ(out, "\xE4\xBD\xA0hi\xC3\xA9");
}

TEST_F(StreamDecoderTest, UnfinishedBytesBecomeOneReplacementAtTheEnd) {
  EXPECT_EQ(decode("a\xF0\x9F\x98"), "a\xEF\xBF\xBD");
  StreamDecoder decoder(*tokenizer_);
  std::string out;
  decoder.push(0xC3, out);
  decoder.finish(out);
  decoder.push('a', out);
  decoder.finish(out);
  EXPECT_EQ(out,
            "\xEF\xBF\xBD"
            "a");
}

TEST_F(StreamDecoderTest, WrongBytesBecomeOneReplacementPerLongestPrefix) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(decode("\x80"), r);
  EXPECT_EQ(decode("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(decode("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(decode("\xF4\x90\x80\x80"), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(decode("\xE4\xBD"
                   "a"),
            r + "a");
  EXPECT_EQ(decode("\xF0\x9F\xC3\xA9"), r + "\xC3\xA9");
  EXPECT_EQ(decode("\xE0\x80"), r + r);
}

TEST_F(StreamDecoderTest, AnyBytesGiveValidTextAndValidTextIsUnchanged) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (size_t i = random() % 60; i > 0; --i) bytes.push_back(static_cast<char>(random() % 3 == 0 ? 'a' : random()));
    const std::string text = decode(bytes);
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(decode(text), text);
    if (is_valid_utf8(bytes)) {
      EXPECT_EQ(text, bytes);
    }
  }
}

}  // namespace
}  // namespace inferno
