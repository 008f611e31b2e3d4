// Copyright The albert_tf authors.
// SPDX-License-Identifier: Apache-2.0
//
// Makes calls of the file system fail, for Python and TensorFlow alike; loaded with LD_PRELOAD.
//
// FAILING_CALLS names a file of struct control. Calls on paths below control.folder, and on files
// opened there, are counted; those from number `first` to `last` fail with `error`.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct control {
  long first, last, error, count;
  char folder[4096];
};

static struct control *control;
static char watched[1 << 16];

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAILING_CALLS");
  int file = path ? (int)open(path, O_RDWR) : -1;
  if (file < 0) return;
  void *map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) control = map;
}

static int below(const char *path) {
  return control && control->folder[0] && path &&
         strncmp(path, control->folder, strlen(control->folder)) == 0;
}

static int fails_now(void) {
  long number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
  if (number < control->first || number > control->last) return 0;
  errno = (int)control->error;
  return 1;
}

static int fails_at(const char *path) { return below(path) && fails_now(); }

static int is_watched(int file) {
  return file >= 0 && file < (int)sizeof(watched) && watched[file];
}

static int fails_on(int file) { return is_watched(file) && fails_now(); }

static int watch(int file, const char *path) {
  if (file >= 0 && file < (int)sizeof(watched)) watched[file] = (char)below(path);
  return file;
}

#define REAL(name, ...) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
  return real(__VA_ARGS__)

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    static int (*real)(const char *, int, ...); \
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
    va_list list; \
    va_start(list, flags); \
    mode_t mode = va_arg(list, mode_t); \
    va_end(list); \
    if (fails_at(path)) return -1; \
    return watch(real(path, flags, mode), path); \
  }
OPEN(open)
OPEN(open64)

#define FOPEN(name) \
  FILE *name(const char *path, const char *mode) { \
    static FILE *(*real)(const char *, const char *); \
    if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, #name); \
    if (fails_at(path)) return NULL; \
    FILE *stream = real(path, mode); \
    if (stream) watch(fileno(stream), path); \
    return stream; \
  }
FOPEN(fopen)
FOPEN(fopen64)

int close(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "close");
  int fails = fails_on(file);
  watch(file, NULL);
  int result = real(file);
  if (!fails) return result;
  errno = (int)control->error;
  return -1;
}

int fclose(FILE *stream) {
  static int (*real)(FILE *);
  if (!real) real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fclose");
  int fails = fails_on(fileno(stream));
  watch(fileno(stream), NULL);
  int result = real(stream);
  if (!fails) return result;
  errno = (int)control->error;
  return EOF;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
  if (fails_on(fileno(stream))) return 0;
  REAL(fwrite, data, size, count, stream);
}

int fflush(FILE *stream) {
  if (stream && fails_on(fileno(stream))) return EOF;
  REAL(fflush, stream);
}

ssize_t read(int file, void *data, size_t size) {
  if (fails_on(file)) return -1;
  REAL(read, file, data, size);
}

ssize_t pread(int file, void *data, size_t size, off_t at) {
  if (fails_on(file)) return -1;
  REAL(pread, file, data, size, at);
}

ssize_t pread64(int file, void *data, size_t size, off64_t at) {
  if (fails_on(file)) return -1;
  REAL(pread64, file, data, size, at);
}

ssize_t write(int file, const void *data, size_t size) {
  if (fails_on(file)) return -1;
  REAL(write, file, data, size);
}

int rename(const char *from, const char *to) {
  if (fails_at(from)) return -1;
  REAL(rename, from, to);
}

int unlink(const char *path) {
  if (fails_at(path)) return -1;
  REAL(unlink, path);
}

int rmdir(const char *path) {
  if (fails_at(path)) return -1;
  REAL(rmdir, path);
}

int mkdir(const char *path, mode_t mode) {
  if (fails_at(path)) return -1;
  REAL(mkdir, path, mode);
}

int access(const char *path, int mode) {
  if (fails_at(path)) return -1;
  REAL(access, path, mode);
}

DIR *opendir(const char *path) {
  if (fails_at(path)) return NULL;
  REAL(opendir, path);
}

#define STAT(name, type) \
  int name(const char *path, struct type *result) { \
    static int (*real)(const char *, struct type *); \
    if (!real) real = (int (*)(const char *, struct type *))dlsym(RTLD_NEXT, #name); \
    return fails_at(path) ? -1 : real(path, result); \
  }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

// The same functions for programs that were linked with an older C library, such as TensorFlow.
#define XSTAT(name, type) \
  int name(int version, const char *path, struct type *result) { \
    static int (*real)(int, const char *, struct type *); \
    if (!real) real = (int (*)(int, const char *, struct type *))dlsym(RTLD_NEXT, #name); \
    return fails_at(path) ? -1 : real(version, path, result); \
  }
XSTAT(__xstat, stat)
XSTAT(__lxstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat64, stat64)
