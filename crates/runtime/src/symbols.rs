//! What the preload library has to do with symbols of others, for a test that looks at the one that
//! was built: what it takes, and what it gives.
//!
//! A symbol that is taken is a door: what stands behind it is the program's where the program has
//! one of that name, and it runs where nothing of the program may, waiting for memory that only the
//! caller can bring. One that is given comes before the program's libraries' own. So both are
//! listed by hand, and nothing else passes.

/// Symbols of libc, and of sanitizers, that the library uses if they are there: see shim.c.
pub const TAKEN: [&str; 10] = [
    "__asan_init",
    "__clone",
    "__errno_location",
    "__lsan_init",
    "__msan_init",
    "__register_atfork",
    "__rseq_offset",
    "__rseq_size",
    "__tsan_init",
    "dlsym",
];

/// Functions of libc that the library stands in front of, and one that a sanitizer asks for.
pub const GIVEN: [&str; 44] = [
    "_Fork",
    "__asan_default_options",
    "aio_read",
    "aio_read64",
    "aio_write",
    "aio_write64",
    "clone",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "ioctl",
    "lio_listio",
    "lio_listio64",
    "madvise",
    "mlockall",
    "mmap",
    "mmap64",
    "mq_notify",
    "mremap",
    "munlockall",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "pthread_create",
    "pthread_getaffinity_np",
    "pthread_getattr_np",
    "pthread_mutex_destroy",
    "pthread_mutex_init",
    "pthread_setaffinity_np",
    "sched_getaffinity",
    "sched_setaffinity",
    "setns",
    "syscall",
    "system",
    "thrd_create",
    "timer_create",
    "unshare",
    "vfork",
];
