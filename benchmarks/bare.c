// What the machine can do: the same work with everything left out that could be left out.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

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
