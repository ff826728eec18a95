//! The symbols that the preload library takes from other objects, and those that it gives, for a
//! test that inspects the library that was built.
//!
//! A symbol that is taken is a door. What stands behind it is the program's own function where the
//! program has one of that name. That function would run where nothing of the program may run, and
//! wait for memory that only its caller can bring. A symbol that is given comes before the one that
//! the program's libraries define. So both are listed by hand, and no other symbol passes.

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

/// Functions of libc that the library stands in front of, one that a sanitizer calls, and what the
/// command looks for that puts the library into a program itself.
pub const GIVEN: [&str; 46] = [
    "COLDPRESS_DOORS",
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
    "prctl",
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
