#include "serve/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <array>
#include <new>

#include "base/error.h"
#include "base/file.h"

namespace inferno::serve {
namespace {

constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;
// Of the client's bytes given to OpenSSL at a time: its buffers grow to what they once held.
constexpr size_t kPieceBytes = 16 * 1024;

struct Free {
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string_view reason() {
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  return text == nullptr ? "unknown" : text;
}

Owned<BIO> memory_of(const std::string& text) {
  Owned<BIO> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  if (bio == nullptr) throw std::bad_alloc();
  return bio;
}

// Instead of asking at the terminal.
int no_password(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*data*/) {
  return -1;
}

void use_certificate(SSL_CTX& context, const std::string& file) {
  const std::string text = read_text(file, kMaxPemBytes);
  const Owned<BIO> bio = memory_of(text);
  const Owned<X509> leaf(PEM_read_bio_X509_AUX(bio.get(), nullptr, no_password, nullptr));
  if (leaf == nullptr) fail("{}: the file of `tls_cert` has no certificate in PEM form", file);
  if (SSL_CTX_use_certificate(&context, leaf.get()) != 1) {
    fail("{}: the certificate of `tls_cert` cannot be used: {}", file, reason());
  }
  while (true) {
    Owned<X509> next(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
    if (next == nullptr) return;
    if (SSL_CTX_add_extra_chain_cert(&context, next.get()) != 1) {
      fail("{}: a certificate of `tls_cert` cannot be used: {}", file, reason());
    }
    (void)next.release();  // the context's from now on
  }
}

void use_key(SSL_CTX& context, const std::string& file) {
  const std::string text = read_text(file, kMaxPemBytes);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(memory_of(text).get(), nullptr, no_password, nullptr));
  if (key == nullptr) fail("{}: the file of `tls_key` has no private key in PEM form, without a password", file);
  if (SSL_CTX_use_PrivateKey(&context, key.get()) != 1 || SSL_CTX_check_private_key(&context) != 1) {
    fail("{}: the key of `tls_key` is not that of the certificate", file);
  }
}

}  // namespace

struct TlsContext::Parts {
  Owned<SSL_CTX> context;
};

TlsContext::TlsContext(const std::string& certificate, const std::string& key) : parts_(std::make_unique<Parts>()) {
  parts_->context.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = parts_->context.get();
  if (context == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // An idle connection keeps no buffers; sessions are resumed by what the client keeps.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ERR_clear_error();
  use_certificate(*context, certificate);
  use_key(*context, key);
  ERR_clear_error();
}

TlsContext::~TlsContext() = default;

struct TlsSession::Parts {
  Owned<SSL> ssl;
  BIO* in = nullptr;   // ssl's, as the next
  BIO* out = nullptr;  // what OpenSSL wants to be sent

  void take_wire(std::string& wire) const {
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    if (size > 0) wire.append(data, static_cast<size_t>(size));
    (void)BIO_reset(out);
  }
  [[nodiscard]] State read_all(std::string& plain) const;
};

TlsSession::TlsSession(const TlsContext& context) : parts_(std::make_unique<Parts>()) {
  parts_->ssl.reset(SSL_new(context.parts_->context.get()));
  Owned<BIO> in(BIO_new(BIO_s_mem()));
  Owned<BIO> out(BIO_new(BIO_s_mem()));
  if (parts_->ssl == nullptr || in == nullptr || out == nullptr) throw std::bad_alloc();
  parts_->in = in.get();
  parts_->out = out.get();
  SSL_set_bio(parts_->ssl.get(), in.release(), out.release());
  SSL_set_accept_state(parts_->ssl.get());
}

TlsSession::~TlsSession() = default;

TlsSession::State TlsSession::Parts::read_all(std::string& plain) const {
  std::array<char, kPieceBytes> piece;
  while (true) {
    // Shakes hands first where that is not done.
    const int count = SSL_read(ssl.get(), piece.data(), static_cast<int>(piece.size()));
    if (count > 0) {
      plain.append(piece.data(), static_cast<size_t>(count));
      continue;
    }
    const int error = SSL_get_error(ssl.get(), count);
    if (error == SSL_ERROR_WANT_READ) return State::open;
    return error == SSL_ERROR_ZERO_RETURN ? State::ended : State::failed;
  }
}

TlsSession::State TlsSession::receive(std::string_view bytes, std::string& plain, std::string& wire) {
  ERR_clear_error();
  State state = State::open;
  while (!bytes.empty() && state == State::open) {
    const std::string_view piece = bytes.substr(0, kPieceBytes);
    bytes.remove_prefix(piece.size());
    if (BIO_write(parts_->in, piece.data(), static_cast<int>(piece.size())) != static_cast<int>(piece.size())) {
      throw std::bad_alloc();
    }
    state = parts_->read_all(plain);
  }
  parts_->take_wire(wire);
  return state;
}

bool TlsSession::send(std::string_view plain, std::string& wire) {
  ERR_clear_error();
  while (!plain.empty()) {
    const std::string_view piece = plain.substr(0, kPieceBytes);
    // The memory it writes to is never full.
    const int count = SSL_write(parts_->ssl.get(), piece.data(), static_cast<int>(piece.size()));
    if (count <= 0) return false;
    plain.remove_prefix(static_cast<size_t>(count));
    parts_->take_wire(wire);
  }
  return true;
}

void TlsSession::end(std::string& wire) {
  ERR_clear_error();
  if (SSL_is_init_finished(parts_->ssl.get()) == 1) (void)SSL_shutdown(parts_->ssl.get());
  parts_->take_wire(wire);
}

}  // namespace inferno::serve
