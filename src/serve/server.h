// inferno as a service: an HTTP server over the engines of one model or several.
//
// One thread runs the event loop with all connections; engines compute on their own; a few workers read JSON and make
// tokens; one loads models. No client can make another wait: buffers are bounded, every phase of a request has a
// deadline, bodies are measured before they are read.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/metrics.h"
#include "serve/served_model.h"

namespace inferno::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, not a name
  uint16_t port = 8080;            // 0: one that is free
  std::string model = "model";     // the name clients know it by, of a server over one engine
  std::vector<std::string> keys = {};
  std::vector<std::string> cors_origins = {};  // of pages that may use it: "https://host", or "*"
  std::string tls_cert = {};                   // a file in PEM form, as the next; both or none
  std::string tls_key = {};
  bool no_auth = false;               // without keys: serve others than this machine all the same
  bool any_model = false;             // of one model: requests may name any
  bool llama_metrics = false;         // /metrics has llama-server's names, too
  bool lookup = false;                // guess tokens from the text, unless a request says no
  int32_t max_draft = 15;             // at a time
  bool show_prompts = false;          // answers tell the prompt that was made of the request
  std::optional<uint64_t> seed = {};  // of requests that name none; empty: a random one for each
  int64_t max_queue = 512;
  int64_t max_queue_per_key = 0;  // the same of one API key; 0: no limit of its own
  uint64_t max_body_bytes = uint64_t{8} << 20;
  uint64_t max_buffered_bytes = uint64_t{256} << 20;  // of requests being read, all together
  size_t max_connections = 16'384;
  std::chrono::milliseconds head_time{10'000};     // to send the head of a request
  std::chrono::milliseconds body_time{60'000};     // to send its body
  std::chrono::milliseconds idle_time{75'000};     // between requests
  std::chrono::milliseconds write_time{30'000};    // for a client to take something of what is sent
  std::chrono::milliseconds comment_time{10'000};  // of silence in a stream, after which a comment says that it lives
  std::chrono::milliseconds drain_time{30'000};    // for requests that run when the server ends
  size_t max_unsent_bytes = size_t{1} << 20;       // of a stream whose client does not read
  uint64_t models_memory = 0;                      // bytes for all models that are loaded; 0: no limit
  std::chrono::milliseconds unload_idle{0};        // a model that nobody used for so long is unloaded; 0: never
  std::chrono::milliseconds load_retry{5000};      // between two tries to load a model
  ProfileSource profile = {};                      // of a server over one engine: for /debug/profile and /metrics
  bool handle_signals = false;                     // SIGINT and SIGTERM end it
  std::function<void(std::string_view line)> log = {};  // a line per request; called on the event loop's thread
  bool log_json = false;                                // the lines are JSON
};

class Server {
 public:
  // Listens when it returns. An address that others reach, without keys and no_auth, is an Error.
  Server(std::vector<ModelSource> models, const ServerOptions& options);
  // Over one model, which is always loaded; the engine outlives it.
  Server(Engine& engine, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] uint16_t port() const;
  // Serves until stop(), or a signal; returns when what ran has ended.
  void run();
  // From any thread: new requests are refused, those that run may end within drain_time. A second call ends them.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferno::serve
