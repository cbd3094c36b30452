#include "run.h"

#include <proton/condition.h>
#include <proton/codec.h>
#include <proton/event.h>
#include <proton/sasl.h>
#include <proton/transport.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "pacer.h"

enum { FRAME_SIZE_MAX = 65536, CLOSE_GRACE_MS = 3000 };

uint64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

void run_terminus(const run_t *run, pn_terminus_t *end, const char *address) {
  pn_terminus_set_address(end, address);
  pn_data_put_symbol(pn_terminus_capabilities(end), pn_bytes(5, "queue"));
  if (run->options->durable_queue) pn_terminus_set_durability(end, PN_CONFIGURATION);
}

void run_wake_all(run_t *run) {
  for (unsigned i = 0; i < run->connected; i++)
    if (!run->channels[i].gone) pn_connection_wake(run->channels[i].connection);
}

void run_finish(run_t *run) {
  if (run->closing) return;
  run->closing = true;
  pacer_stop(); /* before any connection ends: one that is woken while it ends is a lock in freed memory */
  run->progress_at_ns = now_ns();
  run_wake_all(run);
}

void run_fail(run_t *run, const char *format, ...) {
  if (!run->failure[0]) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->failure, sizeof run->failure, format, arguments);
    va_end(arguments);
  }
  run_finish(run);
}

static void fail_by_condition(run_t *run, const char *what, pn_condition_t *condition) {
  const char *name = pn_condition_get_name(condition), *text = pn_condition_get_description(condition);
  run_fail(run, "%s by the broker: %s %s", what, name ? name : "no reason given", text ? text : "");
}

static void on_init(channel_t *channel) {
  char container[64];
  pn_connection_t *connection = channel->connection;
  snprintf(container, sizeof container, "mqload-%d-%u", (int)getpid(), channel->index);
  pn_connection_set_container(connection, container);
  pn_connection_set_hostname(connection, "127.0.0.1");
  pn_session_t *session = pn_session(connection);
  pn_connection_open(connection);
  pn_session_open(session);
  channel->run->role->attach(channel, session);
}

static void on_link_open(channel_t *channel, pn_link_t *link) {
  run_t *run = channel->run;
  pn_terminus_t *end = pn_link_is_sender(link) ? pn_link_remote_target(link) : pn_link_remote_source(link);
  if (run->closing || pn_terminus_get_type(end) == PN_UNSPECIFIED) return; /* a refusal: the detach says why */
  run->attached++;
  run->role->attached(channel, link);
}

static void on_link_closed(channel_t *channel, pn_link_t *link) {
  run_t *run = channel->run;
  if (pn_link_state(link) & PN_LOCAL_CLOSED) pn_link_free(link); /* the answer to our own close */
  else if (!run->closing) fail_by_condition(run, "link closed", pn_link_remote_condition(link));
}

static void on_wake(channel_t *channel) {
  if (!channel->run->closing) channel->run->role->wake(channel);
  /* The role may have finished the run just now. */
  if (channel->run->closing) pn_connection_close(channel->connection);
}

static unsigned port_of(const channel_t *channel) {
  const options_t *o = channel->run->options;
  return o->ports[channel->index % o->ports_number];
}

static void on_gone(channel_t *channel, pn_event_t *event) {
  run_t *run = channel->run;
  pn_condition_t *condition = pn_transport_condition(pn_event_transport(event));
  if (channel->gone) return;
  channel->gone = true;
  run->gone++;
  if (!run->closing) {
    if (pn_condition_is_set(condition))
      run_fail(run, "connection to port %u failed: %s: %s", port_of(channel), pn_condition_get_name(condition),
               pn_condition_get_description(condition));
    else run_fail(run, "connection closed by the broker without a reason");
  }
}

static void on_tick(run_t *run) {
  uint64_t now = now_ns();
  if (run->closing) {
    if (now - run->progress_at_ns > CLOSE_GRACE_MS * 1000000ull) run->gone = run->connected;
  } else if (run->progress != run->progress_seen || !run->progress_at_ns) {
    run->progress_seen = run->progress;
    run->progress_at_ns = now;
  } else if (now - run->progress_at_ns > run->options->stall_s * 1000000000ull) {
    run_fail(run, "no progress for %u s", run->options->stall_s);
  }
  if (!run->closing) run->role->tick(run);
  pn_proactor_set_timeout(run->proactor, TICK_MS);
}

static void on_connection_event(channel_t *channel, pn_event_t *event) {
  run_t *run = channel->run;
  switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: on_init(channel); break;
    case PN_LINK_REMOTE_OPEN: on_link_open(channel, pn_event_link(event)); break;
    case PN_CONNECTION_WAKE: on_wake(channel); break;
    case PN_LINK_FLOW: if (!run->closing) run->role->flow(channel, pn_event_link(event)); break;
    case PN_DELIVERY: if (!run->closing) run->role->delivery(channel, pn_event_delivery(event)); break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH: on_link_closed(channel, pn_event_link(event)); break;
    case PN_SESSION_REMOTE_CLOSE:
      if (!run->closing) fail_by_condition(run, "session ended", pn_session_remote_condition(pn_event_session(event)));
      break;
    case PN_CONNECTION_REMOTE_CLOSE:
      if (!run->closing)
        fail_by_condition(run, "connection closed", pn_connection_remote_condition(channel->connection));
      pn_connection_close(channel->connection);
      break;
    case PN_TRANSPORT_CLOSED: on_gone(channel, event); break;
    default: break;
  }
}

static void connect_one(run_t *run, unsigned index) {
  const options_t *o = run->options;
  channel_t *channel = &run->channels[index];
  pn_transport_t *transport = pn_transport();
  char to[32];
  *channel = (channel_t){.run = run, .index = index, .connection = pn_connection()};
  snprintf(to, sizeof to, "127.0.0.1:%u", port_of(channel));
  pn_connection_set_context(channel->connection, channel);
  pn_transport_set_max_frame(transport, FRAME_SIZE_MAX);
  pn_sasl_allowed_mechs(pn_sasl(transport), o->user ? "PLAIN" : "ANONYMOUS");
  if (o->user) {
    pn_connection_set_user(channel->connection, o->user);
    pn_connection_set_password(channel->connection, o->password);
    pn_sasl_set_allow_insecure_mechs(pn_sasl(transport), true);
  }
  pn_proactor_connect2(run->proactor, channel->connection, transport, to);
}

void run_connect(run_t *run, unsigned complete) {
  const options_t *o = run->options;
  unsigned until = o->at_once && complete + o->at_once < o->connections ? complete + o->at_once : o->connections;
  for (; run->connected < until && !run->closing; run->connected++) connect_one(run, run->connected);
}

void run_loop(run_t *run) {
  run->proactor = pn_proactor();
  run->channels = calloc(run->options->connections, sizeof *run->channels);
  run_connect(run, 0);
  pn_proactor_set_timeout(run->proactor, TICK_MS);
  while (run->gone < run->connected) {
    pn_event_batch_t *batch = pn_proactor_wait(run->proactor);
    pn_event_t *event;
    while ((event = pn_event_batch_next(batch))) {
      pn_connection_t *connection = pn_event_connection(event);
      if (connection) on_connection_event(pn_connection_get_context(connection), event);
      else if (pn_event_type(event) == PN_PROACTOR_TIMEOUT) on_tick(run);
    }
    pn_proactor_done(run->proactor, batch);
  }
}
