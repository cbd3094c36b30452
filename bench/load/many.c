#include "many.h"

#include <proton/disposition.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "body.h"
#include "ledger.h"
#include "message.h"
#include "report.h"
#include "run.h"

enum { BUFFER_SIZE = 65536, LINGER_TICKS = 2, SCATTER_LINKS_AT_ONCE = 50, HANDLES_PER_CONNECTION = 4 };

typedef struct {
  message_t message;
  unsigned char *reference;
  ledger_t ledger;
  uint64_t start_ns, last_ns;
  uint64_t accepted, refused, damaged, arrived;
  unsigned complete, linger; /* connections that are done with their links; ticks after the last message */
  char buffer[BUFFER_SIZE];
} many_t;

/* A link to or from the queue of this number, which the link carries as its context. */
static void open_link(channel_t *channel, pn_session_t *session, uint64_t number) {
  const options_t *options = channel->run->options;
  bool sends = options->mode == MODE_SCATTER;
  char name[32], address[512];
  snprintf(name, sizeof name, "queue-%llu", (unsigned long long)number);
  snprintf(address, sizeof address, "%s.%llu", options->address, (unsigned long long)number);
  pn_link_t *link = sends ? pn_sender(session, name) : pn_receiver(session, name);
  run_terminus(channel->run, sends ? pn_link_target(link) : pn_link_source(link), address);
  pn_link_set_snd_settle_mode(link, PN_SND_UNSETTLED);
  pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST);
  pn_link_set_context(link, (void *)(uintptr_t)number);
  if (!sends) pn_link_flow(link, (int)options->credit);
  pn_link_open(link);
}

static uint64_t number_of(pn_link_t *link) { return (uint64_t)(uintptr_t)pn_link_get_context(link); }

/* channel->sent counts the links that were opened, channel->done those that are complete. */
static void open_more(channel_t *channel, pn_session_t *session, uint64_t at_once) {
  const options_t *options = channel->run->options;
  while (channel->sent < options->links && channel->sent - channel->done < at_once)
    open_link(channel, session, (uint64_t)channel->index * options->links + channel->sent++);
}

static void wake(channel_t *channel) { (void)channel; }

/* Scatter: a link is attached, sends its message, and is closed when the message is accepted. A connection that has
 * done so for all its queues stays open until the end, and the next one begins. */

static void scatter_attach(channel_t *channel, pn_session_t *session) {
  open_more(channel, session, SCATTER_LINKS_AT_ONCE);
}

static void scatter_send(channel_t *channel, pn_link_t *link) {
  many_t *many = channel->run->state;
  uint64_t number = number_of(link);
  if (pn_link_state(link) & PN_LOCAL_CLOSED) return; /* credit that came too late */
  if (pn_link_credit(link) <= 0 || pn_link_unsettled(link) > 0) return;
  body_head_t head = {.producer = 0, .sequence = (uint32_t)number};
  body_write(many->message.body, &head);
  pn_delivery(link, pn_dtag((const char *)&number, sizeof number));
  pn_link_send(link, many->message.bytes, many->message.size);
  pn_link_advance(link);
}

static void scatter_answered(channel_t *channel, pn_delivery_t *delivery) {
  run_t *run = channel->run;
  many_t *many = run->state;
  uint64_t state = pn_delivery_remote_state(delivery);
  if (!pn_delivery_updated(delivery) || (!state && !pn_delivery_settled(delivery))) return;
  pn_link_t *link = pn_delivery_link(delivery);
  if (pn_link_state(link) & PN_LOCAL_CLOSED) return; /* a range of answers may hold some that were given before */
  if (state == PN_ACCEPTED) many->accepted++;
  else many->refused++;
  pn_delivery_settle(delivery);
  pn_link_close(link);
  run->progress++;
  if (++channel->done == run->options->links) run_connect(run, ++many->complete);
  open_more(channel, pn_link_session(link), SCATTER_LINKS_AT_ONCE);
  if (many->accepted + many->refused == run->options->count) {
    many->last_ns = now_ns();
    run_finish(run);
  }
}

static void scatter_tick(run_t *run) { (void)run; }

static const role_t SCATTER = {.attach = scatter_attach, .attached = scatter_send, .wake = wake, .flow = scatter_send,
                               .delivery = scatter_answered, .tick = scatter_tick};

/* Attach: all links of a connection at once, then the next connection. */

static void attach_attach(channel_t *channel, pn_session_t *session) {
  open_more(channel, session, channel->run->options->links);
}

static void attach_attached(channel_t *channel, pn_link_t *link) {
  run_t *run = channel->run;
  many_t *many = run->state;
  (void)link;
  run->progress++;
  if (++channel->done == run->options->links) run_connect(run, ++many->complete);
  if (run->attached < run->options->count) return;
  many->last_ns = now_ns();
  printf("{\"ready\":true,\"seconds\":%.6f}\n", (double)(many->last_ns - many->start_ns) / 1e9);
  fflush(stdout);
}

static void attach_flow(channel_t *channel, pn_link_t *link) { (void)channel, (void)link; }

static void account(many_t *many, const options_t *options, pn_link_t *link, size_t size) {
  uint64_t body_size = sizes_largest(&options->sizes);
  body_head_t head;
  if (size < body_size ||
      !body_read((unsigned char *)many->buffer + size - body_size, many->reference, body_size, &head)) {
    many->damaged++;
    return;
  }
  /* A message of another queue counts as one that nobody sent. */
  ledger_note(&many->ledger, head.producer, head.sequence == number_of(link) ? head.sequence : UINT32_MAX);
}

static void attach_arrived(channel_t *channel, pn_delivery_t *delivery) {
  run_t *run = channel->run;
  many_t *many = run->state;
  pn_link_t *link = pn_delivery_link(delivery);
  if (!pn_delivery_readable(delivery) || pn_delivery_partial(delivery)) return;
  ssize_t got = pn_link_recv(link, many->buffer, sizeof many->buffer);
  account(many, run->options, link, got < 0 ? 0 : (size_t)got);
  pn_delivery_update(delivery, PN_ACCEPTED);
  pn_delivery_settle(delivery);
  many->arrived++;
  run->progress++;
}

static void attach_tick(run_t *run) {
  many_t *many = run->state;
  if (many->arrived >= run->options->count && ++many->linger > LINGER_TICKS) run_finish(run);
}

static const role_t ATTACH = {.attach = attach_attach, .attached = attach_attached, .wake = wake, .flow = attach_flow,
                              .delivery = attach_arrived, .tick = attach_tick};

static bool prepare(many_t *many, const options_t *options) {
  struct rlimit handles;
  uint64_t size = sizes_largest(&options->sizes);
  many->reference = malloc(size);
  if (!many->reference || !message_encode(&many->message, size, options->durable) ||
      !ledger_open(&many->ledger, options->count, 1))
    return false;
  body_fill(many->reference, size);
  if (getrlimit(RLIMIT_NOFILE, &handles) == 0) {
    handles.rlim_cur = handles.rlim_max;
    setrlimit(RLIMIT_NOFILE, &handles);
    if (handles.rlim_max / HANDLES_PER_CONNECTION < options->connections) return false;
  }
  many->start_ns = now_ns();
  return true;
}

static many_t *begin(run_t *run) {
  many_t *many = calloc(1, sizeof *many);
  run->state = many;
  if (!many || !prepare(many, run->options)) {
    fputs("mqload: not enough memory or open files for so many connections and queues\n", stderr);
    exit(2);
  }
  run_loop(run);
  return many;
}

int scatter_run(const options_t *options) {
  run_t run = {.options = options, .role = &SCATTER};
  many_t *many = begin(&run);
  if (many->accepted != options->count)
    run_fail(&run, "%llu of %llu queues accepted a message", (unsigned long long)many->accepted,
             (unsigned long long)options->count);
  report_open(&run);
  report_number("count", options->count);
  report_number("accepted", many->accepted);
  report_span(many->start_ns, many->last_ns, options->count);
  return report_close(&run);
}

int attach_run(const options_t *options) {
  run_t run = {.options = options, .role = &ATTACH};
  many_t *many = begin(&run);
  const ledger_t *ledger = &many->ledger;
  if (ledger->received != options->count || ledger->duplicates || ledger->unexpected || many->damaged)
    run_fail(&run, "%llu of %llu queues gave their message; %llu duplicates, %llu from another queue, %llu damaged",
             (unsigned long long)ledger->received, (unsigned long long)options->count,
             (unsigned long long)ledger->duplicates, (unsigned long long)ledger->unexpected,
             (unsigned long long)many->damaged);
  report_open(&run);
  report_number("count", options->count);
  report_number("attached", run.attached);
  report_number("received", ledger->received);
  report_span(many->start_ns, many->last_ns, options->count);
  return report_close(&run);
}
