// What metal-cpp needs of the Objective-C runtime; ../../objective_c.cpp implements it.
#pragma once

typedef struct objc_selector* SEL;
struct objc_object {
  void* isa;
};

extern "C" {
SEL sel_registerName(const char* name);
void* objc_lookUpClass(const char* name);
void* objc_getProtocol(const char* name);
void objc_msgSend();
void objc_msgSend_fpret();
}
