#include "sender.h"

#include <proton/disposition.h>
#include <stdlib.h>

#include "body.h"
#include "histogram.h"
#include "message.h"
#include "pacer.h"
#include "report.h"
#include "run.h"

typedef struct {
  message_t messages[SIZES_MAX]; /* by place in the cycle of sizes */
  bool started;
  uint64_t start_ns, first_ns, last_ns;
  uint64_t sent, accepted, rejected, released, modified, unanswered;
  histogram_t acknowledgement;
} sender_t;

/* Places of the cycle with the same size share one. */
static bool encode(sender_t *sender, const options_t *options) {
  for (unsigned i = 0; i < options->sizes.number; i++) {
    unsigned same = 0;
    while (options->sizes.size[same] != options->sizes.size[i]) same++;
    if (same < i) sender->messages[i] = sender->messages[same];
    else if (!message_encode(&sender->messages[i], options->sizes.size[i], options->durable)) return false;
  }
  return true;
}

static void attach(channel_t *channel, pn_session_t *session) {
  const options_t *options = channel->run->options;
  pn_link_t *link = pn_sender(session, "sender");
  run_terminus(channel->run, pn_link_target(link), options->address);
  pn_link_set_snd_settle_mode(link, options->settled ? PN_SND_SETTLED : PN_SND_UNSETTLED);
  pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST);
  channel->quota = body_share(options->count, options->connections, channel->index);
  channel->link = link;
  pn_link_open(link);
}

/* A message that the broker held back carries the time at which it was due, so that a stall shows in the latency;
 * one that only waited for this process to be woken carries the present. */
static uint64_t stamp_of(const channel_t *channel, uint64_t now) {
  const options_t *options = channel->run->options;
  const sender_t *sender = channel->run->state;
  if (!options->rate || channel->sent >= channel->held) return now;
  return sender->start_ns + channel->sent * 1000000000ull * options->connections / options->rate;
}

static void send_one(channel_t *channel, sender_t *sender) {
  const options_t *options = channel->run->options;
  uint64_t now = options->stamp || !options->settled ? now_ns() : 0;
  body_head_t head = {.producer = channel->index, .sequence = (uint32_t)channel->sent};
  if (options->stamp) head.stamp_ns = stamp_of(channel, now);
  const message_t *message = &sender->messages[channel->sent % options->sizes.number];
  body_write(message->body, &head);
  pn_delivery_t *delivery =
      pn_delivery(channel->link, pn_dtag((const char *)&channel->sent, sizeof channel->sent));
  pn_link_send(channel->link, message->bytes, message->size);
  if (options->settled) pn_delivery_settle(delivery);
  else pn_delivery_set_context(delivery, (void *)(uintptr_t)now);
  pn_link_advance(channel->link);
  channel->sent++;
  sender->sent++;
}

static uint64_t due(const channel_t *channel, const sender_t *sender) {
  const options_t *options = channel->run->options;
  if (!options->rate) return channel->quota;
  double elapsed_s = (double)(now_ns() - sender->start_ns) / 1e9;
  uint64_t messages = 1 + (uint64_t)(elapsed_s * options->rate / options->connections);
  return messages < channel->quota ? messages : channel->quota;
}

static void pump(channel_t *channel) {
  run_t *run = channel->run;
  sender_t *sender = run->state;
  const options_t *options = run->options;
  if (!sender->started || channel->sent == channel->quota) return;
  uint64_t until = due(channel, sender), before = channel->sent;
  uint64_t in_flight = options->settled ? UINT64_MAX : options->in_flight;
  if (!sender->first_ns && pn_link_credit(channel->link) > 0) sender->first_ns = now_ns();
  while (channel->sent < until && pn_link_credit(channel->link) > 0 && channel->sent - channel->done < in_flight)
    send_one(channel, sender);
  channel->held = channel->sent < until ? until : channel->sent;
  run->progress += channel->sent - before;
  if (options->settled && sender->sent == options->count) {
    sender->last_ns = now_ns();
    run_finish(run);
  }
}

static void flow(channel_t *channel, pn_link_t *link) {
  (void)link;
  pump(channel);
}

static void attached(channel_t *channel, pn_link_t *link) {
  run_t *run = channel->run;
  sender_t *sender = run->state;
  (void)link;
  if (run->attached < run->options->connections) return;
  sender->started = true;
  sender->start_ns = now_ns();
  if (run->options->rate) pacer_start(run);
  run_wake_all(run);
}

static void count_outcome(run_t *run, uint64_t state) {
  sender_t *sender = run->state;
  switch (state) {
    case PN_ACCEPTED: sender->accepted++; break;
    case PN_REJECTED: sender->rejected++; break;
    case PN_RELEASED: sender->released++; break;
    case PN_MODIFIED: sender->modified++; break;
    default: sender->unanswered++; break; /* settled without an outcome */
  }
}

static void answered(channel_t *channel, pn_delivery_t *delivery) {
  run_t *run = channel->run;
  sender_t *sender = run->state;
  uint64_t state = pn_delivery_remote_state(delivery);
  if (!pn_delivery_updated(delivery) || (!state && !pn_delivery_settled(delivery))) return;
  uint64_t now = now_ns(), sent = (uint64_t)(uintptr_t)pn_delivery_get_context(delivery);
  if (!sent) return; /* answered before: a range of answers may hold some that were */
  pn_delivery_set_context(delivery, NULL);
  histogram_add(&sender->acknowledgement, now - sent);
  count_outcome(run, state);
  pn_delivery_settle(delivery);
  channel->done++;
  run->progress++;
  if (sender->acknowledgement.total == run->options->count) {
    sender->last_ns = now;
    run_finish(run);
  } else {
    pump(channel);
  }
}

static void tick(run_t *run) { (void)run; }

static const role_t SENDER = {.attach = attach, .attached = attached, .wake = pump, .flow = flow,
                              .delivery = answered, .tick = tick};

int sender_run(const options_t *options) {
  sender_t *sender = calloc(1, sizeof *sender);
  run_t run = {.options = options, .role = &SENDER, .state = sender};
  if (!sender || !encode(sender, options)) {
    fputs("mqload: no memory for a message of this size\n", stderr);
    return 2;
  }
  run_loop(&run);
  uint64_t wanted = options->settled ? sender->sent : sender->accepted;
  if (wanted != options->count)
    run_fail(&run, "%llu of %llu messages %s", (unsigned long long)wanted, (unsigned long long)options->count,
             options->settled ? "sent" : "accepted");
  report_open(&run);
  report_number("count", options->count);
  report_number("sent", sender->sent);
  report_number("accepted", sender->accepted);
  report_number("rejected", sender->rejected);
  report_number("released", sender->released);
  report_number("modified", sender->modified);
  report_number("unanswered", sender->unanswered);
  report_span(sender->first_ns, sender->last_ns, options->count);
  report_histogram("acknowledgement_us", &sender->acknowledgement);
  return report_close(&run);
}
