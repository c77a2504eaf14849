// INFERNO_ADDRESS_SANITIZER: whether this is an AddressSanitizer build, where an access beyond a buffer is a report.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define INFERNO_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INFERNO_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef INFERNO_ADDRESS_SANITIZER
#define INFERNO_ADDRESS_SANITIZER 0
#endif
