/*
 * The program of a trial of the static command. No library can be put into that command itself, so
 * it carries this program of glibc, which does what `hold` in trial.rs does.
 */
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* `HELD` and `WRONG` of trial.rs. */
#define HELD ((size_t)12 << 20)
#define WRONG 3

static uint64_t value(size_t at)
{
    return at % 4 == 0 ? (uint64_t)at * 0x9e3779b9 : 0;
}

/* Returns whether all of the memory is as it was written. */
static int is_right(const volatile uint64_t *memory, size_t words)
{
    int all = 1;
    for (size_t at = 0; at < words; at++)
        all &= memory[at] == value(at);
    return all;
}

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    size_t words = HELD / sizeof(uint64_t);
    volatile uint64_t *memory = malloc(HELD);
    if (!memory)
        return 1;
    for (size_t at = 0; at < words; at++)
        memory[at] = value(at);
    for (;;) {
        int is_last = poll(&input, 1, 0) != 0;
        if (!is_right(memory, words))
            return WRONG;
        if (is_last)
            return 0;
    }
}
