#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace inferno::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kConnectSeconds = 30;
// A transfer that moves less than a byte per second for this long is broken.
constexpr long kStalledSeconds = 60;

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(char* text) const { curl_free(text); }
};
template <typename T>
using Curl = std::unique_ptr<T, CurlDeleter>;

struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
};

Origin origin_of(const std::string& url) {
  const Curl<CURLU> parsed(curl_url());
  const auto part = [&](CURLUPart what) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), what, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return std::string();
    return std::string(Curl<char>(text).get());
  };
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    fail("\"{}\" is not an address of the web", printable(url));
  }
  Origin origin{part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)};
  if (origin.scheme != "http" && origin.scheme != "https") {
    fail("\"{}\" is not an address that begins with https:// or http://", printable(url));
  }
  return origin;
}

struct Transfer {
  const HttpRequest* request;
  CURL* handle;
  std::optional<uint64_t> range_start;  // of a Content-Range header
};

size_t on_header(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  constexpr std::string_view kRange = "content-range:";
  if (line.starts_with("HTTP/")) transfer.range_start.reset();
  if (line.size() > kRange.size() && curl_strnequal(data, kRange.data(), kRange.size()) != 0) {
    std::string_view value = trim(line.substr(kRange.size()));
    if (value.starts_with("bytes ")) value.remove_prefix(6);
    const std::optional<int64_t> start = parse_int(trim(value.substr(0, value.find('-'))));
    if (start && *start >= 0) transfer.range_start = static_cast<uint64_t>(*start);
  }
  return size * count;
}

// Exceptions must not cross libcurl: on_body reports by its result.
size_t on_data(char* data, size_t size, size_t count, void* context) noexcept {
  const auto& transfer = *static_cast<const Transfer*>(context);
  long status = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200 && status != 206) return size * count;  // an error's text, or a redirect's
  const uint64_t from = status == 206 ? transfer.range_start.value_or(0) : 0;
  const bool more = transfer.request->on_body(std::as_bytes(std::span(data, size * count)), from);
  return more ? size * count : 0;
}

struct Reply {
  HttpResult result;
  std::string redirect;  // where to, when it is one
};

Reply get_once(const HttpRequest& request, const std::string& url, bool with_token) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Curl<CURL> handle(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  if (!handle) fail("libcurl cannot be used on this machine");
  Transfer transfer{&request, handle.get(), {}};
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle.get(), option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "inferno");
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, on_data);
  set(CURLOPT_WRITEDATA, &transfer);
  const std::string range = fmt::format("{}-", request.first_byte);
  if (request.first_byte > 0) set(CURLOPT_RANGE, range.c_str());
  Curl<curl_slist> headers;
  if (with_token) {
    headers.reset(curl_slist_append(nullptr, fmt::format("Authorization: Bearer {}", request.token).c_str()));
    set(CURLOPT_HTTPHEADER, headers.get());
  }
  const CURLcode code = curl_easy_perform(handle.get());
  Reply reply;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &reply.result.status);
  reply.result.complete = code == CURLE_OK;
  if (code != CURLE_OK) reply.result.problem = curl_easy_strerror(code);
  const char* to = nullptr;
  curl_easy_getinfo(handle.get(), CURLINFO_REDIRECT_URL, &to);
  if (to != nullptr) reply.redirect = to;
  return reply;
}

}  // namespace

HttpResult http_get(const HttpRequest& request) {
  const Origin first = origin_of(request.url);
  if (request.token.find_first_of("\r\n") != std::string::npos) fail("the token for the hub has a line break in it");
  std::string url = request.url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    const Origin origin = origin_of(url);
    if (first.scheme == "https" && origin.scheme != "https") {
      fail("the hub sends from https to \"{}\", which is not safe", printable(url));
    }
    Reply reply = get_once(request, url, !request.token.empty() && origin == first);
    if (!reply.result.complete || reply.redirect.empty()) return std::move(reply.result);
    url = std::move(reply.redirect);
  }
  fail("the hub's redirects do not end ({} so far)", kMaxRedirects);
}

}  // namespace inferno::hub
