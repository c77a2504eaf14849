// Any bytes as a folder's files: an Error, or a model whose tensors and vocabulary can be read.
//
// The first byte says what the others are: the header of a safetensors file whose data follows, config.json or
// tokenizer.json.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "hf/hf_folder.h"

namespace {

constexpr std::string_view kConfig =
    R"({"model_type":"llama","num_hidden_layers":1,"max_position_embeddings":8,"hidden_size":2,"intermediate_size":2,)"
    R"("num_attention_heads":1,"rms_norm_eps":1e-6,"vocab_size":2,"tie_word_embeddings":true})";
constexpr std::string_view kHeader =
    R"({"model.embed_tokens.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
constexpr std::string_view kTokenizer =
    R"({"added_tokens":[{"id":1,"content":"b","special":true}],"pre_tokenizer":{"type":"ByteLevel"},)"
    R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})";

const std::string& folder() {
  static const std::string path = [] {
    std::string made = "/tmp/inferno_hf_fuzz_XXXXXX";
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    return made;
  }();
  return path;
}

void write(const char* name, std::string_view bytes) {
  std::ofstream(folder() + "/" + name, std::ios::binary) << bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferno;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view header = data[0] % 3 == 0 ? rest : kHeader;
  const uint64_t length = header.size();
  write("config.json", data[0] % 3 == 1 ? rest : kConfig);
  write("tokenizer.json", data[0] % 3 == 2 ? rest : kTokenizer);
  write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + std::string(header) +
                                 std::string(256, '\x3f'));
  try {
    const HfFolder file = HfFolder::open(folder());
    for (size_t i = 0; i < file.tensor_count(); ++i) {
      std::string bytes(file.tensor(i).bytes, '\0');
      file.read_tensor(file.tensor(i), std::as_writable_bytes(std::span(bytes)));
    }
    if (file.has_vocabulary()) (void)file.vocabulary();
  } catch (const Error&) {
  }
  return 0;
}
