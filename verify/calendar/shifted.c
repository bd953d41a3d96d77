/* A wall clock that is ahead by $SHIFTED microseconds, for the process that preloads this. It allocates nothing, so that
 * allocators that ask for the time while they start (jemalloc, in Redis) are no trouble: libfaketime ends such a process. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift;

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("SHIFTED");
  shift = text ? atoll(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
  if (syscall(SYS_clock_gettime, which, now) != 0) return -1;
  if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) {
    long long micros = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + shift;
    now->tv_nsec = micros % 1000000 * 1000 + now->tv_nsec % 1000;
    now->tv_sec = micros / 1000000;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *told) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (told) *told = now.tv_sec;
  return now.tv_sec;
}
