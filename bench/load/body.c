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
