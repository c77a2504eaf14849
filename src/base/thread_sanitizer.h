// INFERNO_THREAD_SANITIZER: whether this is a ThreadSanitizer build, which has its own operator new.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define INFERNO_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define INFERNO_THREAD_SANITIZER 1
#endif
#endif
#ifndef INFERNO_THREAD_SANITIZER
#define INFERNO_THREAD_SANITIZER 0
#endif
