#include "cli/flag_names.h"

#include <algorithm>
#include <array>

namespace inferno::cli {
namespace {

struct Name {
  std::string_view option, flag;
};
constexpr std::array<Name, 35> kNames = {{{"affinity", "--affinity"},
                                          {"alias", "--alias"},
                                          {"any_model", "--any-model"},
                                          {"api_key_file", "--api-key-file"},
                                          {"backend", "--backend"},
                                          {"chat_template", "--chat-template"},
                                          {"context", "--ctx"},
                                          {"cors_origin", "--cors-origin"},
                                          {"depth", "--depth"},
                                          {"draft", "--draft"},
                                          {"fused", "--fused"},
                                          {"grammar", "--grammar"},
                                          {"host", "--host"},
                                          {"ids", "--ids"},
                                          {"json_schema", "--json-schema"},
                                          {"kv_memory", "--kv-memory"},
                                          {"kv_type", "--kv-type"},
                                          {"lookup", "--lookup"},
                                          {"machine", "--machine"},
                                          {"max_draft", "--draft-max"},
                                          {"max_token_latency_ms", "--max-token-latency"},
                                          {"models_memory", "--models-memory"},
                                          {"network", "--network"},
                                          {"no_auth", "--no-auth"},
                                          {"numa", "--numa"},
                                          {"offline", "--offline"},
                                          {"pipeline", "--pipeline"},
                                          {"port", "--port"},
                                          {"ranks", "--ranks"},
                                          {"regex", "--regex"},
                                          {"split", "--split"},
                                          {"threads", "--threads"},
                                          {"tls_cert", "--tls-cert"},
                                          {"tls_key", "--tls-key"},
                                          {"wire", "--wire"}}};

}  // namespace

std::string with_flags(std::string_view message) {
  std::string out;
  while (true) {
    const size_t open = message.find('`');
    const size_t close = open == std::string_view::npos ? open : message.find('`', open + 1);
    if (close == std::string_view::npos) return out.append(message);
    out += message.substr(0, open);
    const std::string_view option = message.substr(open + 1, close - open - 1);
    const auto* const found = std::ranges::find(kNames, option, &Name::option);
    if (found != kNames.end()) {
      out += found->flag;
      message.remove_prefix(close + 1);
    } else {  // no option, or none with a flag: the second backquote may open the next
      out += message.substr(open, close - open);
      message.remove_prefix(close);
    }
  }
}

}  // namespace inferno::cli
