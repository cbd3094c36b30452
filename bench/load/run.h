/* One run: the event loop, its connections and the end of it. A role (sender or receiver) gives the behaviour.
 *
 * One thread drives everything; only the pacer's wake-ups come from another. A connection is touched in its own event
 * batch only (the proactor flushes no other), so whatever concerns all of them goes through a wake-up.
 * The first failure is kept, everything closes after it, and the exit status tells. */
#ifndef RUN_H
#define RUN_H

#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/proactor.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "options.h"

enum { TICK_MS = 100 };

typedef struct run run_t;

typedef struct {
  run_t *run;
  unsigned index;
  pn_connection_t *connection;
  pn_link_t *link;
  bool gone;
  uint64_t quota, sent, done; /* sender: messages to send, sent, answered by the broker */
  uint64_t held;              /* sender: messages below this one were due earlier than they could be sent */
} channel_t;

typedef struct {
  void (*attach)(channel_t *channel, pn_session_t *session); /* makes and opens the links */
  void (*attached)(channel_t *channel, pn_link_t *link);     /* by the broker */
  void (*wake)(channel_t *channel);
  void (*flow)(channel_t *channel, pn_link_t *link);
  void (*delivery)(channel_t *channel, pn_delivery_t *delivery);
  void (*tick)(run_t *run);
} role_t;

struct run {
  const options_t *options;
  const role_t *role;
  void *state; /* the role's */
  pn_proactor_t *proactor;
  channel_t *channels;
  unsigned connected, attached, gone; /* connections begun, links attached, connections ended */
  uint64_t progress; /* anything that counts up while the run is alive */
  uint64_t progress_seen, progress_at_ns;
  bool closing;
  char failure[256];
};

uint64_t now_ns(void);
/* The queue at one end of a link. */
void run_terminus(const run_t *run, pn_terminus_t *end, const char *address);
void run_loop(run_t *run);
/* Begins connections up to --at-once more than those that are `complete`. */
void run_connect(run_t *run, unsigned complete);
void run_wake_all(run_t *run);
void run_finish(run_t *run);
void run_fail(run_t *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
