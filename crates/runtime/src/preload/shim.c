/*
 * What Rust cannot say: weak imports, and that nothing in this object reaches the program's malloc.
 *
 * zstd refers to malloc even where it is given static memory. The definitions here are hidden, so
 * they satisfy this object alone, and end the process should they ever be called.
 */
#include <stddef.h>

void *malloc(size_t size) { (void)size; __builtin_trap(); }
void *calloc(size_t count, size_t size) { (void)count; (void)size; __builtin_trap(); }
void *realloc(void *object, size_t size) { (void)object; (void)size; __builtin_trap(); }
void free(void *object) { if (object) __builtin_trap(); }

/* The standard library's unwinding tables name it; nothing unwinds here (panic = "abort"). */
void rust_eh_personality(void) { __builtin_trap(); }

/* Where glibc (2.35 and later) registers a thread's rseq area, from its thread pointer. */
extern const ptrdiff_t __rseq_offset __attribute__((weak, visibility("default")));
extern const unsigned int __rseq_size __attribute__((weak, visibility("default")));

/* Says whether there is a registered area, and where. */
int coldpress_rseq_offset(ptrdiff_t *offset)
{
    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return 0;
    *offset = __rseq_offset;
    return 1;
}

/* The object's zero-initialised data: the only anonymous memory it comes with. */
extern char __bss_start[], _end[];

void coldpress_own_data(char **start, char **end)
{
    *start = __bss_start;
    *end = _end;
}

/* What the runtimes of gcc's and clang's sanitizers have. */
extern void __asan_init(void) __attribute__((weak, visibility("default")));
extern void __tsan_init(void) __attribute__((weak, visibility("default")));
extern void __msan_init(void) __attribute__((weak, visibility("default")));
extern void __lsan_init(void) __attribute__((weak, visibility("default")));

int coldpress_is_sanitized(void)
{
    return __asan_init || __tsan_init || __msan_init || __lsan_init;
}
