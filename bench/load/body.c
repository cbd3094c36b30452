#include "body.h"

#include <string.h>

_Static_assert(sizeof(body_head_t) == BODY_SIZE_MIN, "the head is what the smallest body holds");

void body_fill(unsigned char *body, size_t size) {
  for (size_t i = 0; i < size; i++) body[i] = (unsigned char)('a' + i % 23);
}

void body_write(unsigned char *body, const body_head_t *head) { memcpy(body, head, sizeof *head); }

bool body_read(const unsigned char *body, const unsigned char *reference, size_t size, body_head_t *head) {
  memcpy(head, body, sizeof *head);
  return memcmp(body + BODY_SIZE_MIN, reference + BODY_SIZE_MIN, size - BODY_SIZE_MIN) == 0;
}

uint64_t body_share(uint64_t count, unsigned producers, unsigned producer) {
  return count / producers + (producer < count % producers ? 1 : 0);
}

uint64_t sizes_at(const sizes_t *sizes, uint64_t sequence) { return sizes->size[sequence % sizes->number]; }

uint64_t sizes_largest(const sizes_t *sizes) { return sizes_fitting(sizes, UINT64_MAX); }

uint64_t sizes_fitting(const sizes_t *sizes, uint64_t bytes) {
  uint64_t found = 0;
  for (unsigned i = 0; i < sizes->number; i++)
    if (sizes->size[i] <= bytes && sizes->size[i] > found) found = sizes->size[i];
  return found;
}

bool sizes_apart(const sizes_t *sizes) {
  for (unsigned i = 0; i < sizes->number; i++)
    for (unsigned j = 0; j < i; j++) {
      uint64_t one = sizes->size[i], other = sizes->size[j], gap = one > other ? one - other : other - one;
      if (gap && gap < SIZES_GAP_MIN) return false;
    }
  return true;
}
