#include "histogram.h"

static unsigned bucket_of(uint64_t value) {
  if (value < (1u << HISTOGRAM_SUB_BITS)) return (unsigned)value;
  unsigned shift = (63 - (unsigned)__builtin_clzll(value)) - HISTOGRAM_SUB_BITS;
  unsigned sub = (unsigned)(value >> shift) & ((1u << HISTOGRAM_SUB_BITS) - 1);
  return ((shift + 1) << HISTOGRAM_SUB_BITS) + sub;
}

static uint64_t bucket_last(unsigned bucket) {
  unsigned row = bucket >> HISTOGRAM_SUB_BITS;
  if (row == 0) return bucket;
  uint64_t sub = bucket & ((1u << HISTOGRAM_SUB_BITS) - 1);
  uint64_t first = ((1ull << HISTOGRAM_SUB_BITS) + sub) << (row - 1);
  return first + (1ull << (row - 1)) - 1;
}

void histogram_add(histogram_t *h, uint64_t value_ns) {
  h->counts[bucket_of(value_ns)]++;
  h->total++;
  if (value_ns > h->max_ns) h->max_ns = value_ns;
}

uint64_t histogram_percentile_ns(const histogram_t *h, double fraction) {
  if (h->total == 0) return 0;
  uint64_t seen = 0;
  double wanted = fraction * (double)h->total;
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
    seen += h->counts[i];
    if (seen > 0 && (double)seen >= wanted) {
      uint64_t last = bucket_last(i);
      return last < h->max_ns ? last : h->max_ns;
    }
  }
  return h->max_ns;
}

void histogram_print_us(const histogram_t *h, FILE *out) {
  fprintf(out, "{\"count\":%llu,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
          (unsigned long long)h->total, (double)histogram_percentile_ns(h, 0.50) / 1e3,
          (double)histogram_percentile_ns(h, 0.99) / 1e3, (double)histogram_percentile_ns(h, 0.999) / 1e3,
          (double)h->max_ns / 1e3);
}
