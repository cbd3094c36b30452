#include "pacer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum { INTERVAL_NS = 200000 };

static pthread_t thread;
static atomic_bool running;

static void *pace(void *argument) {
  run_t *run = argument;
  uint64_t next = now_ns();
  prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
  while (atomic_load(&running)) {
    next += INTERVAL_NS;
    struct timespec at = {.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    for (unsigned i = 0; i < run->options->connections; i++) pn_connection_wake(run->channels[i].connection);
  }
  return NULL;
}

void pacer_start(run_t *run) {
  atomic_store(&running, true);
  if (pthread_create(&thread, NULL, pace, run) != 0) {
    atomic_store(&running, false);
    run_fail(run, "no thread for the pacer");
  }
}

void pacer_stop(void) {
  if (atomic_exchange(&running, false)) pthread_join(thread, NULL);
}
