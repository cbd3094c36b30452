/* The command line: every option, its default and its bounds. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "body.h"

enum { PORTS_MAX = 16 };

typedef enum { MODE_SEND, MODE_RECEIVE, MODE_SCATTER, MODE_ATTACH } load_mode_t;

typedef struct {
  load_mode_t mode;
  unsigned ports[PORTS_MAX]; /* connections take turns */
  unsigned ports_number;
  const char *address;
  const char *user;     /* NULL: SASL ANONYMOUS */
  const char *password; /* from the environment: an argument would show in the process list */
  uint64_t count;
  sizes_t sizes;
  bool settled;
  bool durable;
  bool durable_queue;   /* asks for a durable queue, where the broker makes another kind otherwise */
  bool stamp;           /* send: write the time into each message; receive: measure from it */
  unsigned connections; /* of this process */
  unsigned at_once;     /* connections that may be under way; 0: all of them */
  unsigned links;       /* scatter and attach: queues of each connection */
  unsigned producers;   /* receive: how many senders share the count */
  bool any_order;       /* receive: messages that overtook others are counted, and no failure */
  unsigned in_flight;
  unsigned credit;
  unsigned rate;        /* messages per second of all connections; 0: as fast as credit allows */
  unsigned stall_s;     /* give up after this long without progress */
} options_t;

/* Exits with status 2 and a sentence when the command line does not make sense. */
options_t options_parse(int argc, char **argv);

#endif
