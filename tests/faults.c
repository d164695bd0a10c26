/* A library for LD_PRELOAD that makes one file call of a process go wrong: it is killed there, or the call is
 * refused, or does half of its work. A new machine has no strace and no FUSE; it has gcc.
 *
 * Only calls on paths under the armed folder, and on descriptors opened there, are counted. See faults.py.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL_BEFORE, KILL_AFTER, KILL_AMID, REFUSE, SHORT, INTERRUPT };
enum { PASS, STRUCK, REFUSED };

static struct {
  char folder[4096];
  long at, count;
  int mode, error, forever, armed;
} faults;
static char *opened[4096]; /* by descriptor: the watched path behind it */
static char trace[1 << 18];
static size_t traced;
static int tracing;

/* `at` counts from 1; 0 only counts. `error` is the errno of REFUSE. */
void faults_arm(const char *folder, long at, int mode, int error, int forever) {
  snprintf(faults.folder, sizeof faults.folder, "%s", folder);
  faults.at = at, faults.mode = mode, faults.error = error, faults.forever = forever;
  faults.count = 0, traced = 0, trace[0] = 0, faults.armed = 1;
}

void faults_disarm(void) { faults.armed = 0; }
long faults_count(void) { return faults.count; }

/* One line for each call: its kind, and its path below the folder. */
const char *faults_trace(void) { return trace; }

static const char *of_fd(int fd) {
  return faults.armed && fd >= 0 && fd < 4096 ? opened[fd] : NULL;
}

static const char *of_path(int dir, const char *path) {
  size_t length = strlen(faults.folder);
  if (!faults.armed || !path) return NULL;
  if (path[0] != '/') return of_fd(dir) ? path : NULL;
  return strncmp(path, faults.folder, length) || (path[length] && path[length] != '/') ? NULL : path;
}

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static int strike(const char *kind, const char *path) {
  size_t length = strlen(faults.folder);
  while (__atomic_exchange_n(&tracing, 1, __ATOMIC_ACQUIRE)) sched_yield(); /* threads call at the same time */
  long number = ++faults.count;
  if (traced < sizeof trace - 4200)
    traced += (size_t)snprintf(trace + traced, 4200, "%s %s\n", kind,
                               strncmp(path, faults.folder, length) ? path : path + length);
  __atomic_store_n(&tracing, 0, __ATOMIC_RELEASE);
  if (!faults.at || !(number == faults.at || (faults.forever && number > faults.at))) return PASS;
  if (faults.mode == KILL_BEFORE) die();
  if (faults.mode != REFUSE) return STRUCK;
  errno = faults.error;
  return REFUSED;
}

static void after(int hit) {
  int kept = errno;
  if (hit == STRUCK && (faults.mode == KILL_AFTER || faults.mode == KILL_AMID)) die();
  if (hit == STRUCK && faults.mode == INTERRUPT) raise(SIGINT);
  errno = kept;
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* A function whose fault needs no more than not to happen. */
#define SIMPLE(type, failure, name, kind, watched, parameters, arguments) \
  type name parameters { \
    REAL(name); \
    const char *seen = watched; \
    int hit = seen ? strike(kind, seen) : PASS; \
    if (hit == REFUSED) return failure; \
    type result = real arguments; \
    after(hit); \
    return result; \
  }

#define OPEN(name, kind, dir, parameters, ...) \
  int name parameters { \
    REAL(name); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
      va_list rest; \
      va_start(rest, flags); \
      mode = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    const char *watched = of_path(dir, path); \
    if (!watched) return real(__VA_ARGS__, flags, mode); \
    int hit = strike(kind, watched); \
    if (hit == REFUSED) return -1; \
    int fd = real(__VA_ARGS__, flags, mode); \
    if (fd >= 0 && fd < 4096) opened[fd] = strdup(watched); \
    after(hit); \
    return fd; \
  }

OPEN(open, "open", AT_FDCWD, (const char *path, int flags, ...), path)
OPEN(open64, "open", AT_FDCWD, (const char *path, int flags, ...), path)
OPEN(openat, "open", dir, (int dir, const char *path, int flags, ...), dir, path)
OPEN(openat64, "open", dir, (int dir, const char *path, int flags, ...), dir, path)

/* Half of it where that is the fault; a single byte is written whole, or not at all when killed amid. */
static size_t share(int hit, size_t size) {
  if (hit == STRUCK && faults.mode == KILL_AMID) return size / 2;
  return hit == STRUCK && faults.mode == SHORT && size > 1 ? size / 2 : size;
}

#define FD(name, kind, parameters, arguments) SIMPLE(int, -1, name, kind, of_fd(fd), parameters, arguments)
#define PATH(name, kind, parameters, arguments) \
  SIMPLE(int, -1, name, kind, of_path(AT_FDCWD, path), parameters, arguments)
#define PATH_AT(name, kind, parameters, arguments) \
  SIMPLE(int, -1, name, kind, of_path(dir, path), parameters, arguments)

SIMPLE(ssize_t, -1, read, "read", of_fd(fd), (int fd, void *data, size_t size), (fd, data, size))
SIMPLE(ssize_t, -1, pread, "read", of_fd(fd), (int fd, void *data, size_t size, off_t where), (fd, data, size, where))
SIMPLE(ssize_t, -1, pread64, "read", of_fd(fd), (int fd, void *data, size_t size, off64_t where),
       (fd, data, size, where))
SIMPLE(ssize_t, -1, readv, "read", of_fd(fd), (int fd, const struct iovec *parts, int count), (fd, parts, count))
SIMPLE(ssize_t, -1, preadv2, "read", of_fd(fd),
       (int fd, const struct iovec *parts, int count, off_t where, int flags), (fd, parts, count, where, flags))
SIMPLE(ssize_t, -1, preadv64v2, "read", of_fd(fd),
       (int fd, const struct iovec *parts, int count, off64_t where, int flags), (fd, parts, count, where, flags))
SIMPLE(ssize_t, -1, write, "write", of_fd(fd), (int fd, const void *data, size_t size),
       (fd, data, share(hit, size)))
SIMPLE(ssize_t, -1, pwrite, "write", of_fd(fd), (int fd, const void *data, size_t size, off_t where),
       (fd, data, share(hit, size), where))
SIMPLE(ssize_t, -1, pwrite64, "write", of_fd(fd), (int fd, const void *data, size_t size, off64_t where),
       (fd, data, share(hit, size), where))
SIMPLE(ssize_t, -1, writev, "write", of_fd(fd), (int fd, const struct iovec *parts, int count),
       (fd, parts, (int)share(hit, (size_t)count)))
FD(fsync, "fsync", (int fd), (fd))
FD(fdatasync, "fsync", (int fd), (fd))
FD(ftruncate, "ftruncate", (int fd, off_t size), (fd, size))
FD(ftruncate64, "ftruncate", (int fd, off64_t size), (fd, size))
FD(flock, "flock", (int fd, int how), (fd, how))
FD(fstat, "stat", (int fd, struct stat *status), (fd, status))
FD(fstat64, "stat", (int fd, struct stat64 *status), (fd, status))
PATH(stat, "stat", (const char *path, struct stat *status), (path, status))
PATH(stat64, "stat", (const char *path, struct stat64 *status), (path, status))
PATH(lstat, "stat", (const char *path, struct stat *status), (path, status))
PATH(lstat64, "stat", (const char *path, struct stat64 *status), (path, status))
PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
PATH_AT(mkdirat, "mkdir", (int dir, const char *path, mode_t mode), (dir, path, mode))
PATH(unlink, "unlink", (const char *path), (path))
PATH_AT(unlinkat, "unlink", (int dir, const char *path, int flags), (dir, path, flags))
PATH(rename, "rename", (const char *old, const char *path), (old, path))
PATH_AT(renameat, "rename", (int from, const char *old, int dir, const char *path), (from, old, dir, path))
PATH(link, "link", (const char *old, const char *path), (old, path))
SIMPLE(DIR *, NULL, opendir, "opendir", of_path(AT_FDCWD, path), (const char *path), (path))

/* As Linux does it: a refused close has closed. */
int close(int fd) {
  REAL(close);
  const char *path = of_fd(fd);
  int hit = path ? strike("close", path) : PASS;
  if (fd >= 0 && fd < 4096 && opened[fd]) {
    free(opened[fd]);
    opened[fd] = NULL;
  }
  int error = errno, result = real(fd);
  if (hit == REFUSED) return errno = error, -1;
  after(hit);
  return result;
}
