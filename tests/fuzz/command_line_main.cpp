// The program's entry under another name, for the fuzzer to call.
#define main inferno_main  // NOLINT: what the file below defines
#include "cli/main.cpp"    // NOLINT
