/*
 * What Rust cannot say: weak imports, and that nothing in this object reaches the program's malloc.
 *
 * zstd refers to malloc even where it is given static memory. The definitions here are hidden, so
 * they satisfy this object alone. They end the process should they ever be called.
 */
#include <stddef.h>

void *malloc(size_t size) { (void)size; __builtin_trap(); }
void *calloc(size_t count, size_t size) { (void)count; (void)size; __builtin_trap(); }
void *realloc(void *object, size_t size) { (void)object; (void)size; __builtin_trap(); }
void free(void *object) { if (object) __builtin_trap(); }

/* The standard library's unwinding tables name this; nothing unwinds here (panic = "abort"). */
void rust_eh_personality(void) { __builtin_trap(); }

/*
 * What this object takes from libc: functions, and the offset from a thread's pointer at which
 * glibc (2.35 and later) registers the thread's rseq area. The symbols are weak, because a loader
 * that does not find one, such as musl's, would end a program that is started with this library.
 * Without them the library does nothing. `symbols.rs` lists the names for a test that inspects the
 * linked library.
 */
#define IMPORT __attribute__((weak, visibility("default")))
extern void __clone(void) IMPORT;
extern void __errno_location(void) IMPORT;
extern void __register_atfork(void) IMPORT;
extern void dlsym(void) IMPORT;
/* By the version that glibc has had from the start, also since it moved the function (2.34): an
   older loader would end a program with a library that needs a version it lacks. */
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
extern const ptrdiff_t __rseq_offset IMPORT;
extern const unsigned int __rseq_size IMPORT;

/* The functions, in the order of `Imports` in imports.rs. */
void (*const coldpress_imports[])(void) = {
    __clone, __errno_location, __register_atfork, dlsym,
};

/* Returns whether there is a registered area, and writes where it is. */
int coldpress_rseq_offset(ptrdiff_t *offset)
{
    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return 0;
    *offset = __rseq_offset;
    return 1;
}

/* The object's zero-initialised data, which is the only anonymous memory that it comes with. */
extern char __bss_start[], _end[];

void coldpress_own_data(char **start, char **end)
{
    *start = __bss_start;
    *end = _end;
}

/* Functions that the runtimes of gcc's and clang's sanitizers have. */
extern void __asan_init(void) IMPORT;
extern void __tsan_init(void) IMPORT;
extern void __msan_init(void) IMPORT;
extern void __lsan_init(void) IMPORT;

int coldpress_is_sanitized(void)
{
    return __asan_init || __tsan_init || __msan_init || __lsan_init;
}
