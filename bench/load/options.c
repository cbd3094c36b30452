#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"

static const char USAGE[] =
    "usage: mqload send|receive --port N --address NAME --count N [options]\n"
    "       mqload scatter|attach --port N --address NAME --connections N --links N [options]\n"
    "  scatter: one message to each of the queues NAME.0, NAME.1 and so on, each over a link of its own\n"
    "  attach: a receiver on each of them; says when all are attached, then expects one message on each\n"
    "  one JSON object on stdout; exit 0 when every message was accounted for, 1 when not, 2 on wrong usage\n"
    "  --port N           of the broker; several with commas: connections take turns\n"
    "  --size BYTES       body of a message (100); several with commas: one after the other, again and again\n"
    "  --settled          no acknowledgements (send: pre-settled; receive: asks for pre-settled)\n"
    "  --durable          send: durable messages\n"
    "  --durable-queue    ask for a terminus that outlives the link (for brokers that make other queues otherwise)\n"
    "  --stamp            send: write the time into each message; receive: measure latency from it\n"
    "  --connections N    connections of this process, one link each (1)\n"
    "  --at-once N        connections that may be under way at the same time (all)\n"
    "  --links N          scatter, attach: queues of each connection (1)\n"
    "  --producers N      receive: connections of the sender, which share the count (1)\n"
    "  --any-order        receive: what comes out of order is counted, and no failure\n"
    "  --in-flight N      send: unacknowledged messages of each connection (1000)\n"
    "  --credit N         receive: link credit, granted again at half (2000)\n"
    "  --rate N           send: messages per second of all connections together (0: no limit)\n"
    "  --user NAME        SASL PLAIN, password from MQLOAD_PASSWORD; without it ANONYMOUS\n"
    "  --stall SECONDS    give up after this long without progress (30)\n"
    "connects to 127.0.0.1 only\n";

static void refuse(const char *what, const char *value) {
  fprintf(stderr, "mqload: %s%s%s\n%s", what, value ? ": " : "", value ? value : "", USAGE);
  exit(2);
}

static uint64_t number(const char *option, const char *text, uint64_t min, uint64_t max) {
  char *end;
  unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || value < min || value > max) {
    char why[120];
    snprintf(why, sizeof why, "--%s must be a number of %llu to %llu", option, (unsigned long long)min,
             (unsigned long long)max);
    refuse(why, text);
  }
  return value;
}

static sizes_t sizes(const char *name, char *text) {
  sizes_t found = {0};
  char *rest = text;
  for (char *one; (one = strsep(&rest, ","));) {
    if (found.number == SIZES_MAX) refuse("--size takes 32 sizes at most", NULL);
    found.size[found.number++] = number(name, one, BODY_SIZE_MIN, 16 << 20);
  }
  if (!sizes_apart(&found)) refuse("--size: sizes must be equal or 256 bytes apart", NULL);
  return found;
}

static void ports(options_t *o, const char *name, char *text) {
  char *rest = text;
  for (char *one; (one = strsep(&rest, ","));) {
    if (o->ports_number == PORTS_MAX) refuse("--port takes 16 ports at most", NULL);
    o->ports[o->ports_number++] = (unsigned)number(name, one, 1, 65535);
  }
}

static const struct option LONG[] = {
    {"port", required_argument, 0, 'p'},      {"address", required_argument, 0, 'a'},
    {"user", required_argument, 0, 'u'},      {"count", required_argument, 0, 'n'},
    {"size", required_argument, 0, 's'},      {"settled", no_argument, 0, 'S'},
    {"durable", no_argument, 0, 'd'},         {"stamp", no_argument, 0, 't'},
    {"connections", required_argument, 0, 'c'}, {"producers", required_argument, 0, 'P'},
    {"in-flight", required_argument, 0, 'f'}, {"credit", required_argument, 0, 'C'},
    {"rate", required_argument, 0, 'r'},      {"stall", required_argument, 0, 'w'},
    {"durable-queue", no_argument, 0, 'D'},   {"any-order", no_argument, 0, 'O'},
    {"links", required_argument, 0, 'l'},     {"at-once", required_argument, 0, 'o'},
    {0, 0, 0, 0}};

static void take(options_t *o, int option, const char *name) {
  switch (option) {
    case 'p': ports(o, name, optarg); break;
    case 'a': o->address = optarg; break;
    case 'u': o->user = optarg; break;
    case 'n': o->count = number(name, optarg, 1, 1000000000); break;
    case 's': o->sizes = sizes(name, optarg); break;
    case 'S': o->settled = true; break;
    case 'd': o->durable = true; break;
    case 'D': o->durable_queue = true; break;
    case 'O': o->any_order = true; break;
    case 't': o->stamp = true; break;
    case 'c': o->connections = (unsigned)number(name, optarg, 1, 10000); break;
    case 'P': o->producers = (unsigned)number(name, optarg, 1, 10000); break;
    case 'f': o->in_flight = (unsigned)number(name, optarg, 1, 1000000); break;
    case 'C': o->credit = (unsigned)number(name, optarg, 1, 1000000); break;
    case 'r': o->rate = (unsigned)number(name, optarg, 1, 10000000); break;
    case 'l': o->links = (unsigned)number(name, optarg, 1, 100000); break;
    case 'o': o->at_once = (unsigned)number(name, optarg, 1, 10000); break;
    case 'w': o->stall_s = (unsigned)number(name, optarg, 1, 3600); break;
    default: refuse("unknown or incomplete option", NULL);
  }
}

static load_mode_t mode(const char *text) {
  static const char *const NAMES[] = {"send", "receive", "scatter", "attach"};
  for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (text && strcmp(text, NAMES[i]) == 0) return (load_mode_t)i;
  refuse("say send, receive, scatter or attach", text);
  return MODE_SEND;
}

options_t options_parse(int argc, char **argv) {
  options_t o = {.sizes = {.number = 1, .size = {100}}, .connections = 1, .links = 1, .producers = 1,
                 .in_flight = 1000, .credit = 2000, .stall_s = 30};
  o.mode = mode(argc < 2 ? NULL : argv[1]);
  int option, index = 0;
  opterr = 0;
  while ((option = getopt_long(argc - 1, argv + 1, "", LONG, &index)) != -1) take(&o, option, LONG[index].name);
  if (optind < argc - 1) refuse("one argument too many", argv[optind + 1]);
  if (o.mode == MODE_SCATTER || o.mode == MODE_ATTACH) {
    if (o.count || o.sizes.number > 1) refuse("scatter and attach take no --count and one --size", NULL);
    o.count = (uint64_t)o.connections * o.links;
  }
  if (!o.ports_number || !o.address || !o.count) refuse("--port, --address and --count are needed", NULL);
  if (o.mode == MODE_SEND && o.connections > o.count) refuse("fewer messages than connections", NULL);
  o.password = getenv("MQLOAD_PASSWORD");
  if (o.user && !o.password) refuse("--user needs a password in MQLOAD_PASSWORD", NULL);
  return o;
}
