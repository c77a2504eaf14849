// What metal-cpp uses of CoreFoundation.
#pragma once
#include <cmath>
#include <cstdint>
typedef double CFTimeInterval;
