// TLS: the same answers, and what happens to clients that do not speak it.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <filesystem>
#include <fstream>

#include "serve/client.h"
#include "serve/tls.h"

namespace inferno::testing {
namespace {

using std::chrono::milliseconds;

// A self-signed certificate for localhost and its key, made for this test, in files.
class Certificate {
 public:
  Certificate() {
    std::filesystem::create_directories(folder_);
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
    BIO* out = BIO_new_file(cert().c_str(), "w");
    PEM_write_bio_X509(out, certificate);
    BIO_free(out);
    out = BIO_new_file(this->key().c_str(), "w");
    PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
    BIO_free(out);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~Certificate() { std::filesystem::remove_all(folder_); }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  [[nodiscard]] std::string cert() const { return folder_ / "cert.pem"; }
  [[nodiscard]] std::string key() const { return folder_ / "key.pem"; }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("inferno-tls-{}-{}", ::getpid(), static_cast<void*>(this));
};

// A TLS client over the raw one.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port) : client_(port), context_(SSL_CTX_new(TLS_client_method())) {
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, client_.descriptor());
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void send(const std::string& text) const { SSL_write(ssl_, text.data(), static_cast<int>(text.size())); }
  // Until it has come, or nothing more comes.
  bool receive_until(std::string_view text) {
    char buffer[4096];
    while (in_.find(text) == std::string::npos) {
      const int count = SSL_read(ssl_, buffer, sizeof buffer);
      if (count <= 0) return false;
      in_.append(buffer, static_cast<size_t>(count));
    }
    return true;
  }
  // The end was said, not only there.
  bool ended() {
    char byte = 0;
    const int count = SSL_read(ssl_, &byte, 1);
    return SSL_get_error(ssl_, count) == SSL_ERROR_ZERO_RETURN;
  }
  [[nodiscard]] std::string take() { return std::exchange(in_, {}); }
  [[nodiscard]] Client& raw() { return client_; }

 private:
  Client client_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
  std::string in_;
};

class ServeTls : public ::testing::Test {
 protected:
  Certificate files_;
  TestServer server_{[this](serve::ServerOptions& options) {
    options.tls_cert = files_.cert();
    options.tls_key = files_.key();
    options.head_time = milliseconds(500);
  }};
};

std::string post(const std::string& body) {
  return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                     body);
}

TEST_F(ServeTls, RequestsAndStreamsAreAnsweredOneAfterTheOther) {
  TlsClient client(server_.port());
  ASSERT_TRUE(client.connected());
  for (int i = 0; i < 3; ++i) {
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(client.receive_until("{\"status\":\"ok\"}\n"));
    EXPECT_TRUE(client.take().starts_with("HTTP/1.1 200"));
    client.send(post(R"({"prompt":"The sea","max_tokens":20,"ignore_eos":true,"stream":true})"));
    EXPECT_TRUE(client.receive_until("data: [DONE]\n\n\r\n0\r\n\r\n"));
    (void)client.take();
  }
  // Longer than a record of TLS, in both directions.
  const std::string text = post(R"({"prompt":"a","max_tokens":1,"user":")" + std::string(200'000, 'u') + "\"}");
  client.send(text);
  EXPECT_TRUE(client.receive_until("\"usage\""));
  client.send("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.receive_until("/v1/messages"));
  while (client.receive_until("never")) {
  }
  EXPECT_TRUE(client.ended());
}

TEST_F(ServeTls, PlainHttpIsAnsweredWithWhatToDo) {
  Client plain(server_.port());
  const Reply reply = plain.get("/health");
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("https://"), std::string::npos);
  EXPECT_TRUE(plain.at_end());
}

TEST_F(ServeTls, WhatIsNoTlsAndHandshakesThatDoNotEndAreClosed) {
  Client noise(server_.port());
  noise.send(std::string("\x16\x03\x01\x00\x05hello", 10) + std::string(100, '\xFF'));
  while (noise.receive_until("never")) {
  }
  Client silent(server_.port());
  Client half(server_.port());
  half.send(std::string("\x16\x03\x01\x02", 4));
  EXPECT_TRUE(half.at_end()) << "after the time for a head";
  EXPECT_TRUE(silent.at_end());
  EXPECT_TRUE(TlsClient(server_.port()).connected());
}

TEST_F(ServeTls, AClientThatGoesAwayCancelsItsRequest) {
  {
    TlsClient client(server_.port());
    client.send(post(R"({"prompt":"The sea","max_tokens":900,"ignore_eos":true,"stream":true})"));
    EXPECT_TRUE(client.receive_until("data: "));
  }
  for (int i = 0; i < 6000 && server_.engine().scheduler().stats().running > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(server_.engine().scheduler().stats().running, 0);
}

TEST(ServeTlsFiles, WhatIsWrongWithThemIsOneLine) {
  const Certificate files;
  const Certificate others;
  const auto message = [](const std::string& cert, const std::string& key) -> std::string {
    try {
      const serve::TlsContext context(cert, key);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const auto expect = [&](const std::string& cert, const std::string& key, const std::string& part) {
    const std::string text = message(cert, key);
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  };
  EXPECT_EQ(message(files.cert(), files.key()), "");
  expect(files.cert() + "x", files.key(), "cert.pemx");
  expect(files.cert(), files.key() + "x", "key.pemx");
  expect(files.file("empty", ""), files.key(), "no certificate");
  expect(files.file("noise", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), files.key(),
         "no certificate");
  expect(files.cert(), files.cert(), "no private key");
  expect(files.cert(), others.key(), "not that of the certificate");
  const auto engine = story_engine();
  EXPECT_THROW(serve::Server(*engine, {.port = 0, .tls_cert = files.cert()}), Error);
}

}  // namespace
}  // namespace inferno::testing
