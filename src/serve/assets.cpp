#include "serve/assets.h"

// The linker places the bytes of a file between two symbols.
#define INFERNO_ASSET(name, path)                                                                                    \
  extern "C" {                                                                                                       \
  extern const char inferno_##name##_begin[];                                                                        \
  extern const char inferno_##name##_end[];                                                                          \
  }                                                                                                                  \
  __asm__(".section .rodata\n.hidden inferno_" #name "_begin\n.hidden inferno_" #name "_end\n.global inferno_" #name \
          "_begin\n.global inferno_" #name "_end\ninferno_" #name "_begin:\n.incbin \"" path "\"\ninferno_" #name    \
          "_end:\n.previous\n")

INFERNO_ASSET(page, INFERNO_PAGE);
INFERNO_ASSET(openapi, INFERNO_OPENAPI);

namespace inferno::serve {

std::string_view page_html() {
  return {inferno_page_begin, static_cast<size_t>(inferno_page_end - inferno_page_begin)};
}

std::string_view openapi_json() {
  return {inferno_openapi_begin, static_cast<size_t>(inferno_openapi_end - inferno_openapi_begin)};
}

}  // namespace inferno::serve
