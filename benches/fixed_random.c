/* Preloaded into a server whose instructions are counted: its random numbers are the same each time.
 *
 * The server seeds its hash tables from /dev/urandom. By chance two names of commands then share a bucket or do not,
 * which is 200 instructions more or less for every request. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef FILE *open_function(const char *, const char *);

static FILE *open_next(const char *name, const char *path, const char *mode) {
    open_function *next = (open_function *)dlsym(RTLD_NEXT, name);
    return next(strcmp(path, "/dev/urandom") == 0 ? "/dev/zero" : path, mode);
}

FILE *fopen(const char *path, const char *mode) {
    return open_next("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    return open_next("fopen64", path, mode);
}
