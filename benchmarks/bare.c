// What the machine can do: the same work with everything left out that could be left out.
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Offsets of frames by their lengths alone: no checksums, no bounds, no room check.
size_t walk(const uint8_t *p, size_t size, uint64_t *offsets) {
  size_t at = 0, count = 0;
  while (at < size) {
    uint64_t length;
    memcpy(&length, p + at, 8);
    offsets[count++] = at;
    at += length + 16;
  }
  offsets[count] = at;
  return count;
}

// The same, fetching all that is to come 8 KiB ahead: short records follow each other at the speed of memory, not
// of its latency. (Addresses behind the end are never read, only asked for.)
size_t walk_ahead(const uint8_t *p, size_t size, uint64_t *offsets) {
  size_t at = 0, count = 0, reached = 0;
  while (at < size) {
    uint64_t length;
    memcpy(&length, p + at, 8);
    offsets[count++] = at;
    at += length + 16;
    if (length < 4096)
      for (reached = reached < at ? at : reached; reached < at + 8192; reached += 64) __builtin_prefetch(p + reached);
  }
  offsets[count] = at;
  return count;
}

// Every byte once, at the widest load there is, four loads under way.
typedef uint64_t Wide __attribute__((vector_size(64), aligned(1), may_alias));

uint64_t sum(const uint8_t *p, size_t size) {
  Wide a = {0}, b = {0}, c = {0}, d = {0};
  size_t at = 0;
  for (; at + 256 <= size; at += 256) {
    __builtin_prefetch(p + at + 4096);
    __builtin_prefetch(p + at + 4096 + 64);
    __builtin_prefetch(p + at + 4096 + 128);
    __builtin_prefetch(p + at + 4096 + 192);
    a += *(const Wide *)(p + at);
    b += *(const Wide *)(p + at + 64);
    c += *(const Wide *)(p + at + 128);
    d += *(const Wide *)(p + at + 192);
  }
  a += b + c + d;
  uint64_t total = 0;
  for (int i = 0; i < 8; ++i) total += a[i];
  for (; at < size; ++at) total += p[at];
  return total;
}

typedef struct {
  const uint8_t *p;
  size_t size;
  uint64_t total;
} Part;

static void *sum_part(void *part) {
  Part *own = part;
  own->total = sum(own->p, own->size);
  return NULL;
}

uint64_t sum_threads(const uint8_t *p, size_t size, size_t threads) {
  pthread_t ids[64];
  Part parts[64];
  uint64_t total = 0;
  if (threads > 64) threads = 64;
  for (size_t i = 0; i < threads; ++i) {
    const size_t from = size / threads * i, to = i + 1 == threads ? size : size / threads * (i + 1);
    parts[i] = (Part){p + from, to - from, 0};
    pthread_create(&ids[i], NULL, sum_part, &parts[i]);
  }
  for (size_t i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    total += parts[i].total;
  }
  return total;
}

// Payloads as Python bytes, where it is known beforehand that frames i in [0, count) begin at bounds[i] - origin.
PyObject *bytes_list(const char *p, const uint64_t *bounds, size_t origin, size_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; ++i) {
    const uint64_t from = bounds[i] - origin, to = bounds[i + 1] - origin;
    PyList_SET_ITEM(list, (Py_ssize_t)i, PyBytes_FromStringAndSize(p + from + 12, (Py_ssize_t)(to - from - 16)));
  }
  return list;
}

static void in_threads(size_t threads, void *(*job)(void *), void *what) {
  pthread_t ids[256];
  size_t started = 0;
  for (threads = threads > 256 ? 256 : threads; started < threads; ++started)
    if (pthread_create(&ids[started], NULL, job, what)) break;
  for (size_t i = 0; i < started; ++i) pthread_join(ids[i], NULL);
}

// Payloads whose offsets in the file are known, one after the other: no header, no checksum. Gives the bytes read.
uint64_t pread_loop(int fd, const uint64_t *offsets, const uint64_t *lengths, size_t count, char *out) {
  uint64_t done = 0;
  for (size_t i = 0; i < count; ++i) {
    const ssize_t got = pread(fd, out + done, lengths[i], (off_t)offsets[i]);
    if (got != (ssize_t)lengths[i]) return 0;
    done += (uint64_t)got;
  }
  return done;
}

// The same with a request under way in each thread. With `align`, whole pages to a buffer that the thread keeps, as
// O_DIRECT demands; else to where the payload belongs.
typedef struct {
  int fd;
  const uint64_t *offsets, *lengths, *places;
  size_t count, align;
  char *out;
  atomic_size_t next, done;
} Reads;

static void *pread_part(void *part) {
  Reads *all = part;
  char *own = NULL;
  size_t room = 0, done = 0;
  for (size_t i; (i = atomic_fetch_add(&all->next, 1)) < all->count;) {
    const uint64_t begin = all->offsets[i], length = all->lengths[i];
    if (!all->align) {
      if (pread(all->fd, all->out + all->places[i], length, (off_t)begin) != (ssize_t)length) break;
    } else {
      const uint64_t from = begin / all->align * all->align, skipped = begin - from;
      const size_t size = (skipped + length + all->align - 1) / all->align * all->align;
      if (size > room) {
        free(own);
        if (posix_memalign((void **)&own, all->align, room = 2 * size)) break;
      }
      if (pread(all->fd, own, size, (off_t)from) < (ssize_t)(skipped + length)) break;
    }
    done += length;
  }
  free(own);
  atomic_fetch_add(&all->done, done);
  return NULL;
}

uint64_t pread_threads(int fd, const uint64_t *offsets, const uint64_t *lengths, const uint64_t *places, size_t count,
                       char *out, size_t align, size_t threads) {
  Reads all = {fd, offsets, lengths, places, count, align, out, 0, 0};
  in_threads(threads, pread_part, &all);
  return all.done;
}

// Small files whole: open, fstat, read, close, by as many threads as wanted. Gives the bytes read.
typedef struct {
  const char *const *paths;
  size_t count;
  atomic_size_t next, done;
} Names;

static void *read_some(void *part) {
  enum { kStep = 64 };
  static _Thread_local char buffer[1 << 16];
  Names *all = part;
  size_t done = 0;
  for (size_t from; (from = atomic_fetch_add(&all->next, kStep)) < all->count;)
    for (size_t i = from; i < from + kStep && i < all->count; ++i) {
      struct stat status;
      const int fd = open(all->paths[i], O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      const ssize_t got = fstat(fd, &status) ? 0 : read(fd, buffer, sizeof buffer);
      if (got > 0 && got == status.st_size) done += (size_t)got;
      close(fd);
    }
  atomic_fetch_add(&all->done, done);
  return NULL;
}

uint64_t read_files(const char *const *paths, size_t count, size_t threads) {
  Names all = {paths, count, 0, 0};
  in_threads(threads, read_some, &all);
  return all.done;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The same, of whole folders: finds out first which files there are, and sorts them.
uint64_t read_folders(const char *const *folders, size_t count, size_t threads) {
  char **names = NULL;
  size_t known = 0, room = 0;
  for (size_t i = 0; i < count; ++i) {
    DIR *const folder = opendir(folders[i]);
    if (!folder) continue;
    const size_t first = known, stem = strlen(folders[i]) + 1;
    for (struct dirent *entry; (entry = readdir(folder));) {
      if (entry->d_name[0] == '.' || entry->d_type != DT_REG) continue;
      if (known == room) names = realloc(names, sizeof *names * (room = 2 * room + 1024));
      char *const name = malloc(stem + strlen(entry->d_name) + 1);
      memcpy(name, folders[i], stem - 1);
      name[stem - 1] = '/';
      strcpy(name + stem, entry->d_name);
      names[known++] = name;
    }
    closedir(folder);
    qsort(names + first, known - first, sizeof *names, by_name);
  }
  const uint64_t done = read_files((const char *const *)names, known, threads);
  while (known) free(names[--known]);
  free(names);
  return done;
}

// Pages of a file that are in the page cache.
size_t resident(int fd, size_t size) {
  const size_t pages = (size + 4095) / 4096;
  unsigned char *const found = malloc(pages);
  void *const map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  size_t count = 0;
  if (map == MAP_FAILED || !found || mincore(map, size, found)) {
    count = pages + 1;
  } else {
    for (size_t i = 0; i < pages; ++i) count += found[i] & 1;
  }
  if (map != MAP_FAILED) munmap(map, size);
  free(found);
  return count;
}

// One pass over data and nothing else: `size` bytes of files read and `written` bytes written, in step, 4 MiB at a
// time, each thread to a file of its own, past the page cache with `direct`; flushed in the end. Gives the bytes moved.
typedef struct {
  const char *const *paths;
  const size_t *starts; // of the files in the whole, and its end
  size_t files, written, steps;
  const char *stem;
  int direct;
  atomic_size_t next, thread, done;
} Pass;

enum { kPage = 4096, kPiece = 4 << 20 };

static size_t share(size_t total, size_t step, size_t steps) {
  return step == steps ? total : (size_t)((double)total / steps * step) / kPage * kPage;
}

static size_t read_range(const Pass *all, size_t begin, size_t end, char *buffer) {
  size_t done = 0;
  for (size_t i = 0; i < all->files; ++i) {
    const size_t from = begin > all->starts[i] ? begin : all->starts[i];
    const size_t to = end < all->starts[i + 1] ? end : all->starts[i + 1];
    if (from >= to) continue;
    const size_t in_file = from - all->starts[i], head = in_file % kPage;
    const int fd = open(all->paths[i], O_RDONLY | O_CLOEXEC | (all->direct ? O_DIRECT : 0));
    const size_t want = all->direct ? (head + to - from + kPage - 1) / kPage * kPage : head + to - from;
    size_t got = 0;
    for (ssize_t n; got < want && (n = pread(fd, buffer + got, want - got, (off_t)(in_file - head + got))) > 0;)
      got += (size_t)n;
    if (got >= head) done += got - head < to - from ? got - head : to - from;
    close(fd);
  }
  return done;
}

static void *pass_part(void *part) {
  Pass *all = part;
  char path[4096], *buffer;
  snprintf(path, sizeof path, "%s.%zu", all->stem, atomic_fetch_add(&all->thread, 1));
  const int out = all->written ? open(path, O_WRONLY | O_CREAT | O_TRUNC | (all->direct ? O_DIRECT : 0), 0644) : -1;
  if (posix_memalign((void **)&buffer, kPage, 2 * kPiece)) return NULL;
  memset(buffer, 'x', 2 * kPiece);
  size_t done = 0;
  for (size_t i; (i = atomic_fetch_add(&all->next, 1)) < all->steps;) {
    const size_t total = all->starts[all->files];
    done += read_range(all, share(total, i, all->steps), share(total, i + 1, all->steps), buffer);
    size_t left = share(all->written, i + 1, all->steps) - share(all->written, i, all->steps);
    if (all->direct) left = left / kPage * kPage;
    for (ssize_t n; left && (n = write(out, buffer, left)) > 0; left -= (size_t)n) done += (size_t)n;
  }
  if (out >= 0) {
    fsync(out);
    close(out);
  }
  free(buffer);
  atomic_fetch_add(&all->done, done);
  return NULL;
}

uint64_t one_pass(const char *const *paths, const size_t *starts, size_t files, const char *stem, size_t written,
              size_t threads, int direct) {
  const size_t total = starts[files], most = total > written ? total : written;
  Pass all = {paths, starts, files, written, (most + kPiece - 1) / kPiece, stem, direct, 0, 0, 0};
  in_threads(threads, pass_part, &all);
  return all.done;
}
