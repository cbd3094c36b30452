#include "report.h"

static void print_text(const char *text) {
  putchar('"');
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') printf("\\%c", *c);
    else if (*c < 0x20) printf("\\u%04x", *c);
    else putchar(*c);
  }
  putchar('"');
}

void report_open(const run_t *run) {
  static const char *const NAMES[] = {"send", "receive", "scatter", "attach"};
  printf("{\"mode\":\"%s\"", NAMES[run->options->mode]);
}

void report_number(const char *name, uint64_t value) { printf(",\"%s\":%llu", name, (unsigned long long)value); }

void report_span(uint64_t first_ns, uint64_t last_ns, uint64_t messages) {
  double seconds = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 0;
  report_number("first_ns", first_ns);
  report_number("last_ns", last_ns);
  printf(",\"seconds\":%.6f,\"per_second\":%.1f", seconds,
         seconds > 0 && messages > 1 ? (double)(messages - 1) / seconds : 0);
}

void report_rate(const char *name, uint64_t first_ns, uint64_t last_ns, uint64_t messages) {
  double seconds = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 0;
  printf(",\"%s\":%.1f", name, seconds > 0 ? (double)messages / seconds : 0);
}

void report_histogram(const char *name, const histogram_t *histogram) {
  printf(",\"%s\":", name);
  histogram_print_us(histogram, stdout);
}

int report_close(const run_t *run) {
  printf(",\"ok\":%s,\"failure\":", run->failure[0] ? "false" : "true");
  print_text(run->failure);
  puts("}");
  return run->failure[0] ? 1 : 0;
}
