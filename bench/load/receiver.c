#include "receiver.h"

#include <proton/disposition.h>
#include <stdlib.h>

#include "body.h"
#include "histogram.h"
#include "ledger.h"
#include "report.h"
#include "run.h"

enum { SECTIONS_SIZE_MAX = 4096, LINGER_TICKS = 2 };

typedef struct {
  char *buffer;
  unsigned char *reference; /* as long as the largest size: the pattern of a smaller one is its beginning */
  ledger_t ledger;
  uint64_t size_max, arrived, damaged, first_ns, head_ns, tail_ns, last_ns;
  unsigned linger;
  histogram_t latency;
} receiver_t;

static void attach(channel_t *channel, pn_session_t *session) {
  const options_t *options = channel->run->options;
  pn_link_t *link = pn_receiver(session, "receiver");
  run_terminus(channel->run, pn_link_source(link), options->address);
  pn_link_set_snd_settle_mode(link, options->settled ? PN_SND_SETTLED : PN_SND_UNSETTLED);
  pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST);
  pn_link_flow(link, (int)options->credit);
  channel->link = link;
  pn_link_open(link);
}

/* One line before the result, so that whoever started us knows when the sender may start. */
static void attached(channel_t *channel, pn_link_t *link) {
  (void)link;
  if (channel->run->attached < channel->run->options->connections) return;
  puts("{\"ready\":true}");
  fflush(stdout);
}

/* The body is the last section, so it is the message's end. */
static void account(run_t *run, const char *message, size_t size) {
  receiver_t *receiver = run->state;
  const options_t *options = run->options;
  uint64_t body_size = sizes_fitting(&options->sizes, size);
  body_head_t head;
  if (!body_size ||
      !body_read((const unsigned char *)message + size - body_size, receiver->reference, body_size, &head) ||
      sizes_at(&options->sizes, head.sequence) != body_size) {
    receiver->damaged++;
    return;
  }
  ledger_note(&receiver->ledger, head.producer, head.sequence);
  if (options->stamp) {
    uint64_t now = now_ns();
    histogram_add(&receiver->latency, now > head.stamp_ns ? now - head.stamp_ns : 0);
  }
}

/* The first and the last tenth are timed for themselves: does a deep queue get slower as it empties? */
static void count(receiver_t *receiver, uint64_t wanted) {
  receiver->arrived++;
  if (receiver->arrived == wanted / 10) receiver->head_ns = now_ns();
  if (receiver->arrived == wanted - wanted / 10) receiver->tail_ns = now_ns();
  if (receiver->arrived == wanted) receiver->last_ns = now_ns();
}

static void arrived(channel_t *channel, pn_delivery_t *delivery) {
  run_t *run = channel->run;
  receiver_t *receiver = run->state;
  const options_t *options = run->options;
  if (!pn_delivery_readable(delivery) || pn_delivery_partial(delivery)) return;
  size_t size = pn_delivery_pending(delivery);
  if (size > receiver->size_max + SECTIONS_SIZE_MAX) {
    run_fail(run, "a message of %zu bytes where the body has %llu at most", size,
             (unsigned long long)receiver->size_max);
    return;
  }
  if (!receiver->arrived) receiver->first_ns = now_ns();
  ssize_t got = pn_link_recv(channel->link, receiver->buffer, size);
  if (got < 0) got = 0; /* nothing to read: counts as damaged */
  account(run, receiver->buffer, (size_t)got);
  if (!options->settled) pn_delivery_update(delivery, PN_ACCEPTED);
  pn_delivery_settle(delivery);
  int credit = pn_link_credit(channel->link);
  if (credit <= (int)options->credit / 2) pn_link_flow(channel->link, (int)options->credit - credit);
  run->progress++;
  count(receiver, options->count);
}

static void tick(run_t *run) {
  receiver_t *receiver = run->state;
  if (receiver->arrived >= run->options->count && ++receiver->linger > LINGER_TICKS) run_finish(run);
}

static void wake(channel_t *channel) { (void)channel; }

static void flow(channel_t *channel, pn_link_t *link) { (void)channel, (void)link; }

static const role_t RECEIVER = {.attach = attach, .attached = attached, .wake = wake, .flow = flow,
                                .delivery = arrived, .tick = tick};

static void judge(run_t *run, const receiver_t *receiver) {
  const options_t *options = run->options;
  const ledger_t *ledger = &receiver->ledger;
  if (ledger->received != options->count)
    run_fail(run, "%llu of %llu messages received", (unsigned long long)ledger->received,
             (unsigned long long)options->count);
  if (ledger->duplicates || ledger->unexpected || receiver->damaged)
    run_fail(run, "%llu duplicates, %llu that nobody sent, %llu damaged", (unsigned long long)ledger->duplicates,
             (unsigned long long)ledger->unexpected, (unsigned long long)receiver->damaged);
  /* Several consumers of one queue keep no common order. */
  if (ledger->out_of_order && options->connections == 1 && !options->any_order)
    run_fail(run, "%llu messages out of order", (unsigned long long)ledger->out_of_order);
}

int receiver_run(const options_t *options) {
  receiver_t *receiver = calloc(1, sizeof *receiver);
  run_t run = {.options = options, .role = &RECEIVER, .state = receiver};
  uint64_t size_max = sizes_largest(&options->sizes);
  if (receiver) receiver->buffer = malloc(size_max + SECTIONS_SIZE_MAX);
  if (receiver) receiver->reference = malloc(size_max);
  if (!receiver || !receiver->buffer || !receiver->reference ||
      !ledger_open(&receiver->ledger, options->count, options->producers)) {
    fputs("mqload: no memory for this count and size\n", stderr);
    return 2;
  }
  receiver->size_max = size_max;
  body_fill(receiver->reference, size_max);
  run_loop(&run);
  judge(&run, receiver);
  report_open(&run);
  report_number("count", options->count);
  report_number("received", receiver->ledger.received);
  report_number("duplicates", receiver->ledger.duplicates);
  report_number("unexpected", receiver->ledger.unexpected);
  report_number("damaged", receiver->damaged);
  report_number("out_of_order", receiver->ledger.out_of_order);
  report_span(receiver->first_ns, receiver->last_ns, options->count);
  report_rate("head_per_second", receiver->first_ns, receiver->head_ns, options->count / 10);
  report_rate("tail_per_second", receiver->tail_ns, receiver->last_ns, options->count / 10);
  report_histogram("latency_us", &receiver->latency);
  ledger_close(&receiver->ledger);
  return report_close(&run);
}
