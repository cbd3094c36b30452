/* Durations in nanoseconds, counted in buckets whose width grows with the value: 128 per power of two, so a
 * percentile is at most 1/128 above the true one, whatever its size. Bounded: 46 KiB, no allocation. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

enum { HISTOGRAM_SUB_BITS = 7, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS };

typedef struct {
  uint64_t counts[HISTOGRAM_BUCKETS];
  uint64_t total;
  uint64_t max_ns;
} histogram_t;

void histogram_add(histogram_t *h, uint64_t value_ns);

/* The smallest bucket end that at least `fraction` of the values do not exceed; 0 when nothing was counted. */
uint64_t histogram_percentile_ns(const histogram_t *h, double fraction);

/* One JSON object: {"count":…,"p50":…,"p99":…,"p999":…,"max":…}, times in microseconds. */
void histogram_print_us(const histogram_t *h, FILE *out);

#endif
