// A file as part of the program.
#pragma once

// INFERNO_EMBED_FILE(name, "path") defines the symbols NAME_begin and NAME_end around the file's bytes, aligned to 64,
// in memory that is only read. Declare them where they are used:
//
//   extern "C" { extern const unsigned char name_begin[]; extern const unsigned char name_end[]; }
//
// The directives are the assembler's, which differ between Linux's object files (ELF) and macOS's (Mach-O).
#if defined(__APPLE__)
#define INFERNO_EMBED_SYMBOL(name) "\t.private_extern _" name "\n\t.globl _" name "\n_" name ":\n"
#define INFERNO_EMBED_SECTION "\t.section __TEXT,__const\n\t.balign 64\n"
#define INFERNO_EMBED_END "\t.text\n"
#else
#define INFERNO_EMBED_SYMBOL(name) "\t.hidden " name "\n\t.global " name "\n" name ":\n"
#define INFERNO_EMBED_SECTION "\t.section .rodata\n\t.balign 64\n"
#define INFERNO_EMBED_END "\t.previous\n"
#endif
#define INFERNO_EMBED_FILE(name, path)                                                                                \
  __asm__(INFERNO_EMBED_SECTION INFERNO_EMBED_SYMBOL(#name "_begin") "\t.incbin \"" path "\"\n" INFERNO_EMBED_SYMBOL( \
      #name "_end") INFERNO_EMBED_END)
