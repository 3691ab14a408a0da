// Keeps a record of what a disk would have of the AOF and RDB files of a server after a loss of power: of each file what
// it had at its last fsync or fdatasync, and of each folder the names that it had at its last fsync. It is preloaded; the
// folder is the one in which the process starts. testkit/src/disk.rs says how a test loses power.
//
// In the folder `synced` there is for each file, by the number of its inode,
//   INODE            a link, so that the file is still there when it has lost its names
//   INODE.length     how many bytes of it are synced, and when the last of the writes among them was made (microseconds)
//   INODE.names      of a folder: its path and a line `INODE NAME` for each file
//
// If there is a file `power-lost` at the start of the process, with a number of per cent, the files are cut back first:
// each keeps what was synced and so much of the rest, as a disk may have written some of it. `power-lost` then has the
// moment of the last write that is certainly there.
//
// Not here: writes that the disk carries out in another order, and blocks that it writes only partly.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATH 4096
#define FILES 4096

static char root[PATH];
// When each open file was last written to.
static volatile long long written_us[FILES];
static pthread_mutex_t records = PTHREAD_MUTEX_INITIALIZER;

struct record {
    long long length, written_us;
};

static long long now_us(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static const char *record_path(char *to, unsigned long long inode, const char *what) {
    snprintf(to, PATH, "%.3000s/synced/%llu%s", root, inode, what);
    return to;
}

static struct record read_record(unsigned long long inode) {
    char path[PATH];
    struct record found = {0, 0};
    FILE *file = fopen(record_path(path, inode, ".length"), "r");
    if (!file) return found;
    if (fscanf(file, "%lld %lld", &found.length, &found.written_us) != 2) found.length = found.written_us = 0;
    fclose(file);
    return found;
}

// One write of as many bytes as before: a process that is killed leaves the old record or the new one.
static void write_record(unsigned long long inode, struct record found) {
    char path[PATH], text[64];
    int file = open(record_path(path, inode, ".length"), O_WRONLY | O_CREAT, 0644);
    if (file < 0) return;
    int length = snprintf(text, sizeof text, "%20lld %20lld\n", found.length, found.written_us);
    syscall(SYS_write, file, text, length);
    close(file);
}

static int is_data(const char *name) { return strstr(name, ".aof") || strstr(name, ".rdb"); }

static int path_of(int file, char *to) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, to, PATH - 1);
    to[length < 0 ? 0 : length] = 0;
    return strncmp(to, root, strlen(root)) == 0;
}

static void file_is_synced(int file, long long length, long long last_write_us) {
    char path[PATH], link_path[PATH], own[64];
    struct stat about;
    if (!path_of(file, path) || !is_data(path) || fstat(file, &about) != 0) return;
    snprintf(own, sizeof own, "/proc/self/fd/%d", file);
    linkat(AT_FDCWD, own, AT_FDCWD, record_path(link_path, about.st_ino, ""), AT_SYMLINK_FOLLOW);
    pthread_mutex_lock(&records);
    struct record found = read_record(about.st_ino);
    // Two threads may sync the same file: the one that began earlier may end later.
    if (length > found.length) found.length = length;
    if (last_write_us > found.written_us) found.written_us = last_write_us;
    write_record(about.st_ino, found);
    pthread_mutex_unlock(&records);
}

static void folder_is_synced(const char *path, unsigned long long inode) {
    char draft[PATH], final[PATH];
    DIR *folder = opendir(path);
    FILE *names = fopen(record_path(draft, inode, ".draft"), "w");
    if (folder && names) {
        fprintf(names, "%s\n", path);
        for (struct dirent *entry; (entry = readdir(folder));)
            if (is_data(entry->d_name)) fprintf(names, "%llu %s\n", (unsigned long long)entry->d_ino, entry->d_name);
    }
    if (folder) closedir(folder);
    if (names) fclose(names);
    rename(draft, record_path(final, inode, ".names"));
}

// The file is shorter than it was: what is written behind its end is not synced.
static void file_is_cut(const char *path, long long length) {
    struct stat about;
    if (stat(path, &about) != 0) return;
    struct record found = read_record(about.st_ino);
    if (found.length <= length) return;
    found.length = length;
    write_record(about.st_ino, found);
}

static int sync_file(long number, int file) {
    struct stat about;
    // In this order: what was written before the moment is within the length.
    long long last_write_us = file >= 0 && file < FILES ? written_us[file] : 0;
    int is_known = fstat(file, &about) == 0;
    int result = syscall(number, file);
    int error = errno;
    if (result == 0 && is_known && S_ISREG(about.st_mode)) file_is_synced(file, about.st_size, last_write_us);
    char path[PATH];
    if (result == 0 && is_known && S_ISDIR(about.st_mode) && path_of(file, path)) folder_is_synced(path, about.st_ino);
    errno = error;
    return result;
}

int fsync(int file) { return sync_file(SYS_fsync, file); }

int fdatasync(int file) { return sync_file(SYS_fdatasync, file); }

ssize_t write(int file, const void *from, size_t length) {
    ssize_t result = syscall(SYS_write, file, from, length);
    if (result > 0 && file >= 0 && file < FILES) written_us[file] = now_us();
    return result;
}

int close(int file) {
    if (file >= 0 && file < FILES) written_us[file] = 0;
    return syscall(SYS_close, file);
}

int truncate(const char *path, off_t length) {
    int result = syscall(SYS_truncate, path, length);
    if (result == 0 && is_data(path)) file_is_cut(path, length);
    return result;
}

int ftruncate(int file, off_t length) {
    char path[PATH];
    int result = syscall(SYS_ftruncate, file, length);
    if (result == 0 && path_of(file, path) && is_data(path)) file_is_cut(path, length);
    return result;
}

// Cuts a file back, and counts what is left as synced.
static void cut_back(const char *path, int kept_per_cent, long long *last_us) {
    struct stat about;
    if (stat(path, &about) != 0) return;
    struct record found = read_record(about.st_ino);
    if (about.st_size > found.length) {
        found.length += (about.st_size - found.length) * kept_per_cent / 100;
        syscall(SYS_truncate, path, found.length);
    }
    // The server appends to this file alone. A write has all that was answered before it.
    if (strstr(path, ".incr.aof") && found.written_us > *last_us) *last_us = found.written_us;
    write_record(about.st_ino, found);
}

static void cut_back_folder(const char *path, int kept_per_cent, long long *last_us) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char file[PATH];
        snprintf(file, PATH, "%.3000s/%s", path, entry->d_name);
        if (entry->d_type == DT_REG && is_data(entry->d_name)) cut_back(file, kept_per_cent, last_us);
    }
    closedir(folder);
}

// Gives a folder the names back that it had at its last sync.
static void restore_names(const char *record) {
    char path[PATH], line[PATH], file[PATH], kept[PATH];
    FILE *names = fopen(record, "r");
    if (!names || !fgets(path, PATH, names)) return;
    path[strcspn(path, "\n")] = 0;
    // First all names go: a file that was renamed has two links by then.
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!is_data(entry->d_name)) continue;
        snprintf(file, PATH, "%.3000s/%s", path, entry->d_name);
        // One that was never synced has no other link yet.
        link(file, record_path(kept, entry->d_ino, ""));
        unlink(file);
    }
    if (folder) closedir(folder);
    while (fgets(line, PATH, names)) {
        line[strcspn(line, "\n")] = 0;
        char *name;
        unsigned long long inode = strtoull(line, &name, 10);
        snprintf(file, PATH, "%.3000s/%s", path, name + 1);
        // A file that was removed before it was ever synced comes back empty.
        if (link(record_path(kept, inode, ""), file) != 0) close(open(file, O_WRONLY | O_CREAT, 0644));
    }
    fclose(names);
}

static void lose_power(int kept_per_cent) {
    char path[PATH];
    long long last_us = 0;
    snprintf(path, PATH, "%.3000s/synced", root);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".names")) continue;
        snprintf(path, PATH, "%.3000s/synced/%s", root, entry->d_name);
        restore_names(path);
    }
    if (folder) closedir(folder);
    cut_back_folder(root, kept_per_cent, &last_us);
    snprintf(path, PATH, "%.3000s/appendonlydir", root);
    cut_back_folder(path, kept_per_cent, &last_us);
    snprintf(path, PATH, "%.3000s/power-lost", root);
    FILE *answer = fopen(path, "w");
    if (answer) {
        fprintf(answer, "since %lld\n", last_us);
        fclose(answer);
    }
}

static void lock(void) { pthread_mutex_lock(&records); }

static void unlock(void) { pthread_mutex_unlock(&records); }

__attribute__((constructor)) static void start(void) {
    char path[PATH];
    if (!getcwd(root, 3000)) return;
    // The process that writes a snapshot is forked while another thread may have the lock.
    pthread_atfork(lock, unlock, unlock);
    snprintf(path, PATH, "%.3000s/synced", root);
    mkdir(path, 0755);
    snprintf(path, PATH, "%.3000s/power-lost", root);
    FILE *order = fopen(path, "r");
    if (!order) return;
    int kept_per_cent;
    int is_order = fscanf(order, "%d", &kept_per_cent) == 1;
    fclose(order);
    if (is_order) lose_power(kept_per_cent);
}
