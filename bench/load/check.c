/* Checks of the load generator's pure parts: what they count must be right, for every figure rests on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "histogram.h"
#include "ledger.h"

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

static void near(uint64_t found, uint64_t wanted) {
  CHECK(found >= wanted);
  CHECK(found - wanted <= wanted / 128 + 1);
}

static void check_histogram(void) {
  static histogram_t h;
  CHECK(histogram_percentile_ns(&h, 0.5) == 0);
  for (uint64_t value = 1; value <= 100000; value++) histogram_add(&h, value * 1000);
  near(histogram_percentile_ns(&h, 0.50), 50000000);
  near(histogram_percentile_ns(&h, 0.99), 99000000);
  near(histogram_percentile_ns(&h, 0.999), 99900000);
  CHECK(histogram_percentile_ns(&h, 1.0) == 100000000);
  CHECK(h.total == 100000 && h.max_ns == 100000000);
}

static void check_histogram_extremes(void) {
  static histogram_t h;
  for (unsigned bit = 0; bit < 64; bit++) {
    memset(&h, 0, sizeof h);
    histogram_add(&h, 1ull << bit);
    histogram_add(&h, UINT64_MAX);
    near(histogram_percentile_ns(&h, 0.5), 1ull << bit);
    CHECK(histogram_percentile_ns(&h, 1.0) == UINT64_MAX);
  }
}

static void check_ledger(void) {
  ledger_t ledger;
  CHECK(ledger_open(&ledger, 10, 3)); /* shares of 4, 3 and 3 */
  ledger_note(&ledger, 0, 0);
  ledger_note(&ledger, 0, 3);
  ledger_note(&ledger, 0, 2); /* overtaken by 3 */
  ledger_note(&ledger, 1, 0); /* next to the last bit of producer 0 */
  ledger_note(&ledger, 1, 0); /* again */
  ledger_note(&ledger, 1, 3); /* beyond its share */
  ledger_note(&ledger, 3, 0); /* no such producer */
  ledger_note(&ledger, 2, 2);
  CHECK(ledger.received == 5 && ledger.duplicates == 1);
  CHECK(ledger.unexpected == 2 && ledger.out_of_order == 1);
  ledger_close(&ledger);
}

static void check_shares(void) {
  for (unsigned producers = 1; producers <= 20; producers++)
    for (uint64_t count = 1; count <= 50; count++) {
      uint64_t sum = 0;
      for (unsigned i = 0; i < producers; i++) sum += body_share(count, producers, i);
      CHECK(sum == count);
    }
}

static void check_body(void) {
  unsigned char body[64], reference[64];
  body_head_t wrote = {.stamp_ns = 12345678901234ull, .producer = 7, .sequence = 99}, read;
  body_fill(body, sizeof body);
  body_fill(reference, sizeof reference);
  body_write(body, &wrote);
  CHECK(body_read(body, reference, sizeof body, &read) && memcmp(&wrote, &read, sizeof read) == 0);
  body[63] ^= 1;
  CHECK(!body_read(body, reference, sizeof body, &read));
}

static void check_sizes(void) {
  sizes_t mix = {.number = 4, .size = {100, 10240, 100, 1024}}, near_mix = {.number = 2, .size = {100, 355}};
  CHECK(sizes_at(&mix, 0) == 100 && sizes_at(&mix, 1) == 10240 && sizes_at(&mix, 7) == 1024);
  CHECK(sizes_largest(&mix) == 10240);
  CHECK(sizes_fitting(&mix, 99) == 0 && sizes_fitting(&mix, 130) == 100);
  CHECK(sizes_fitting(&mix, 1024) == 1024 && sizes_fitting(&mix, 20000) == 10240);
  CHECK(sizes_apart(&mix) && !sizes_apart(&near_mix));
}

int main(void) {
  check_histogram();
  check_histogram_extremes();
  check_ledger();
  check_shares();
  check_body();
  check_sizes();
  puts("load generator: histogram, ledger, bodies and sizes hold");
  return 0;
}
