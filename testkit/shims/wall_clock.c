// Shifts the wall clock of a process, and no other clock, by the microseconds in the file that DSYNC_TEST_SHIFT names. If
// a second number in it is not 0, the shift counts from that reading on. It is preloaded: see testkit/src/wall_clock.rs.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

static long long shift_us(void) {
    if (!shift) return 0;
    if (shift[1] > 0) shift[1]--;
    return shift[1] ? 0 : shift[0];
}

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("DSYNC_TEST_SHIFT");
    int file = name ? open(name, O_RDWR) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *shift, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
}

static long long now_us(struct timespec *exact, clockid_t id) {
    syscall(SYS_clock_gettime, id, exact);
    return exact->tv_sec * 1000000LL + exact->tv_nsec / 1000 + shift_us();
}

int clock_gettime(clockid_t id, struct timespec *to) {
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, id, to);
    long long us = now_us(to, id);
    to->tv_sec = us / 1000000;
    to->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec exact;
    long long us = now_us(&exact, CLOCK_REALTIME);
    (void)zone;
    to->tv_sec = us / 1000000;
    to->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec exact;
    time_t now = now_us(&exact, CLOCK_REALTIME) / 1000000;
    if (to) *to = now;
    return now;
}

// Valkey from 9.0 on loads modules so that their symbols are bound to the C library first: they would see another clock
// than the server.
void *dlopen(const char *name, int flags) {
    void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    return real(name, flags & ~RTLD_DEEPBIND);
}
