/* The method of terashuf, in code of our own: lines of standard input, shuffled, to standard output.
 *
 *   terashuf MEGABYTES FOLDER
 *
 * As many lines as fit are shuffled in memory and written to a file of their own; then the files are merged,
 * each next line from one of them, with a probability proportional to the lines that it has left. One thread.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t below(uint64_t limit) { /* splitmix64; Lemire's range */
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (uint64_t)((unsigned __int128)(z ^ z >> 31) * limit >> 64);
}

typedef struct {
  FILE *file;
  uint64_t left;
} Part;

static Part parts[1024];
static size_t count;

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void put(const char *line, size_t size, FILE *out) {
  if (fwrite_unlocked(line, 1, size, out) != size) die("write");
}

/* Shuffled lines of the buffer, to a file that is gone when the process is. */
static void spill(const char *buffer, size_t *starts, size_t lines, const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/terashuf-%zu", folder, count);
  FILE *const file = fopen(path, "w+b");
  if (!file || unlink(path) || count == sizeof parts / sizeof *parts) die(path);
  setvbuf(file, NULL, _IOFBF, 1 << 20);
  for (size_t i = lines; i > 1; --i) {
    const size_t j = below(i), held = starts[i - 1];
    starts[i - 1] = starts[j];
    starts[j] = held;
  }
  for (size_t i = 0; i < lines; ++i) {
    const char *const line = buffer + starts[i];
    put(line, (size_t)((char *)rawmemchr(line, '\n') - line) + 1, file);
  }
  rewind(file);
  parts[count++] = (Part){file, lines};
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const size_t room = strtoull(argv[1], NULL, 10) << 20;
  char *const buffer = malloc(room), *line = NULL;
  size_t *const starts = malloc(room / 2), most = room / 2 / sizeof *starts; /* beside the buffer */
  size_t filled = 0, lines = 0, capacity = 0;
  uint64_t left = 0;
  setvbuf(stdin, NULL, _IOFBF, 1 << 20);
  setvbuf(stdout, NULL, _IOFBF, 1 << 20);
  if (!buffer || !starts) die("memory");
  for (ssize_t size; (size = getline(&line, &capacity, stdin)) > 0;) {
    if (filled + (size_t)size > room || lines == most) {
      spill(buffer, starts, lines, argv[2]);
      filled = lines = 0;
    }
    memcpy(buffer + filled, line, (size_t)size);
    starts[lines++] = filled;
    filled += (size_t)size;
    ++left;
  }
  spill(buffer, starts, lines, argv[2]);
  for (; left; --left) {
    uint64_t place = below(left);
    size_t i = 0;
    while (place >= parts[i].left) place -= parts[i++].left;
    const ssize_t size = getline(&line, &capacity, parts[i].file);
    if (size <= 0) die("read");
    put(line, (size_t)size, stdout);
    --parts[i].left;
  }
  if (fflush(stdout)) die("flush");
  return 0;
}
