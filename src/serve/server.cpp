#include "serve/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <csignal>
#include <exception>
#include <optional>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "serve/connection.h"

namespace inferno::serve {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kWorkers = 2;
constexpr int kBacklog = 4096;
constexpr std::chrono::milliseconds kAcceptPause{100};  // when no file descriptor is left
constexpr std::chrono::milliseconds kDrainLook{10};
constexpr std::chrono::milliseconds kGatherTime{5};    // between looks for what engines have for clients
constexpr std::chrono::milliseconds kIdleLook{1000};   // for models that nobody uses
constexpr std::chrono::milliseconds kAbortTime{2000};  // for what was aborted to tell its client

asio::ip::address address_of(const std::string& host) {
  ErrorCode error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) fail_usage("`host` \"{}\" is not an IP address", host);
  return address;
}

}  // namespace

class Server::Impl {
 public:
  Impl(std::vector<ModelSource> models, const ServerOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void run();
  void stop() {
    asio::post(io_, [this] { on_stop(); });
  }

 private:
  void listen();
  void accept();
  void accept_later();
  void wait_for_signal();
  void on_stop();
  void look_whether_drained();
  void look_for_idle_models();
  [[nodiscard]] bool is_drained() const;

  ServerOptions options_;
  std::unique_ptr<const TlsContext> tls_;
  Models models_;
  Api api_;
  ConnectionShared shared_;
  asio::io_context io_;  // after what its handlers use
  std::optional<asio::thread_pool> workers_;
  std::optional<asio::thread_pool> embedder_;
  std::optional<asio::thread_pool> loader_;
  Tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer accept_timer_;
  asio::steady_timer drain_timer_;
  asio::steady_timer idle_timer_;
  asio::steady_timer gather_timer_;
  std::optional<Clock::time_point> drain_end_;
  bool aborted_ = false;
};

namespace {

std::unique_ptr<const TlsContext> tls_of(const ServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) fail_usage("`tls_cert` and `tls_key` need each other");
  if (options.tls_cert.empty()) return nullptr;
  return std::make_unique<const TlsContext>(options.tls_cert, options.tls_key);
}

// An exception that left a worker's function would end the process.
std::function<void()> guarded(std::function<void()> work) {
  return [work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      log(LogLevel::warn, "an answer was lost: {}", error.what());
    }
  };
}

ApiOptions api_options(const ServerOptions& options) {
  const bool loopback = address_of(options.host).is_loopback();
  if (!loopback && options.keys.empty() && !options.no_auth) {
    fail_usage("`host` {} can be reached from other machines: set an API key, or `no_auth` to serve everybody",
               options.host);
  }
  return {.keys = options.keys,
          .origins = options.cors_origins,
          .local = loopback && !options.no_auth,
          .max_sequences = options.max_queue,
          .max_sequences_per_key = options.max_queue_per_key,
          .seed = options.seed,
          .llama_metrics = options.llama_metrics,
          .lookup = options.lookup,
          .max_draft = options.max_draft,
          .show_prompts = options.show_prompts};
}

std::vector<ModelSource> one_engine(Engine& engine, const ServerOptions& options) {
  // Not its owner.
  const std::shared_ptr<Engine> shared(std::shared_ptr<void>(), &engine);
  return {{.name = options.model, .facts = facts_of(engine), .loaded = {.engine = shared, .profile = options.profile}}};
}

}  // namespace

Server::Impl::Impl(std::vector<ModelSource> models, const ServerOptions& options)
    : options_(options),
      tls_(tls_of(options)),
      models_(
          std::move(models),
          {.memory = options.models_memory,
           .idle_time = options.unload_idle,
           .retry_time = options.load_retry,
           .any_name = options.any_model},
          [this](std::function<void()> work) { asio::post(io_, std::move(work)); },
          [this](std::function<void()> work) { asio::post(*loader_, guarded(std::move(work))); }),
      api_(models_, api_options(options),
           {.loop = [this](std::function<void()> work) { asio::post(io_, std::move(work)); },
            .loop_later =
                [this](std::function<void()> work) {
                  gather_timer_.expires_after(kGatherTime);
                  gather_timer_.async_wait([work = std::move(work)](const ErrorCode& error) {
                    if (!error) work();
                  });
                },
            .worker = [this](std::function<void()> work) { asio::post(*workers_, guarded(std::move(work))); },
            .embedder = [this](std::function<void()> work) { asio::post(*embedder_, guarded(std::move(work))); }}),
      shared_{.api = api_, .options = options_, .tls = tls_.get()},
      io_(1),
      acceptor_(io_),
      signals_(io_),
      accept_timer_(io_),
      drain_timer_(io_),
      idle_timer_(io_),
      gather_timer_(io_) {
  listen();
  const BlockSignals block;
  workers_.emplace(kWorkers);
  embedder_.emplace(1);
  loader_.emplace(1);
}

Server::Impl::~Impl() {
  api_.refuse();
  models_.refuse();
  workers_->stop();
  workers_->join();
  embedder_->stop();
  embedder_->join();
  loader_->stop();
  loader_->join();
  api_.shut_down();
}

void Server::Impl::listen() {
  const Tcp::endpoint endpoint(address_of(options_.host), options_.port);
  ErrorCode error;
  (void)acceptor_.open(endpoint.protocol(), error);
  if (!error) (void)acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) (void)acceptor_.bind(endpoint, error);
  if (!error) (void)acceptor_.listen(kBacklog, error);
  if (error) fail("cannot listen on {} `port` {}: {}", options_.host, options_.port, error.message());
}

void Server::Impl::run() {
  if (options_.handle_signals) {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    wait_for_signal();
  }
  if (options_.unload_idle.count() > 0) look_for_idle_models();
  accept();
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& error) {
      // What the handler worked on goes with it; the others go on.
      log(LogLevel::warn, "a connection failed: {}", error.what());
    }
  }
}

void Server::Impl::accept() {
  acceptor_.async_accept([this](const ErrorCode& error, Tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) return accept_later();
    try {
      // Beyond the limit a connection is closed without an answer.
      if (shared_.all.size() < options_.max_connections)
        std::make_shared<Connection>(std::move(socket), shared_)->start();
    } catch (const std::exception& failure) {
      // The next ones are accepted all the same.
      log(LogLevel::warn, "a connection failed: {}", failure.what());
    }
    accept();
  });
}

void Server::Impl::accept_later() {
  accept_timer_.expires_after(kAcceptPause);
  accept_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) accept();
  });
}

void Server::Impl::wait_for_signal() {
  signals_.async_wait([this](const ErrorCode& error, int /*signal*/) {
    if (error) return;
    on_stop();
    wait_for_signal();
  });
}

void Server::Impl::on_stop() {
  const auto now = Clock::now();
  if (drain_end_) {
    drain_end_ = std::min(*drain_end_, now);
    return;
  }
  drain_end_ = now + options_.drain_time;
  api_.drain();
  shared_.draining = true;
  const std::vector<Connection*> all(shared_.all.begin(), shared_.all.end());
  for (Connection* connection : all) {
    if (connection->is_idle()) connection->close();
  }
  look_whether_drained();
}

bool Server::Impl::is_drained() const {
  return api_.is_idle() && std::ranges::none_of(shared_.all, [](const Connection* c) { return c->is_answering(); });
}

void Server::Impl::look_whether_drained() {
  const auto now = Clock::now();
  if (is_drained() || (aborted_ && now >= *drain_end_)) return io_.stop();
  if (!aborted_ && now >= *drain_end_) {
    aborted_ = true;
    drain_end_ = now + kAbortTime;
    api_.abort_all();
  }
  drain_timer_.expires_after(kDrainLook);
  drain_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) look_whether_drained();
  });
}

void Server::Impl::look_for_idle_models() {
  models_.unload_idle();
  idle_timer_.expires_after(std::min(kIdleLook, options_.unload_idle));
  idle_timer_.async_wait([this](const ErrorCode& error) {
    if (!error) look_for_idle_models();
  });
}

Server::Server(std::vector<ModelSource> models, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(models), options)) {}
Server::Server(Engine& engine, const ServerOptions& options) : Server(one_engine(engine, options), options) {}
Server::~Server() = default;

uint16_t Server::port() const {
  return impl_->port();
}
void Server::run() {
  impl_->run();
}
void Server::stop() {
  impl_->stop();
}

}  // namespace inferno::serve
