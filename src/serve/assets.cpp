#include "serve/assets.h"

#include "base/embed_file.h"

extern "C" {
extern const char inferno_page_begin[];
extern const char inferno_page_end[];
extern const char inferno_openapi_begin[];
extern const char inferno_openapi_end[];
}

INFERNO_EMBED_FILE(inferno_page, INFERNO_PAGE);
INFERNO_EMBED_FILE(inferno_openapi, INFERNO_OPENAPI);

namespace inferno::serve {

std::string_view page_html() {
  return {inferno_page_begin, static_cast<size_t>(inferno_page_end - inferno_page_begin)};
}

std::string_view openapi_json() {
  return {inferno_openapi_begin, static_cast<size_t>(inferno_openapi_end - inferno_openapi_begin)};
}

}  // namespace inferno::serve
