/* What a message's body holds: who sent it, which one it is and when, then a fixed pattern up to the size. Written by
 * the sender over a template and checked by the receiver byte for byte, so that a broker that mixes messages up is
 * seen as such. Host byte order: both ends run on one machine. */
#ifndef BODY_H
#define BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BODY_SIZE_MIN = 16, SIZES_MAX = 32, SIZES_GAP_MIN = 256 };

/* Sizes that come one after the other, again and again: the message of a sequence has the size at its place. */
typedef struct {
  unsigned number;
  uint64_t size[SIZES_MAX];
} sizes_t;

typedef struct {
  uint64_t stamp_ns; /* CLOCK_MONOTONIC, one clock for all processes of a machine; 0 when nobody asked for it. */
  uint32_t producer;
  uint32_t sequence;
} body_head_t;

void body_fill(unsigned char *body, size_t size);
void body_write(unsigned char *body, const body_head_t *head);

/* False when the pattern after the head is not the one that `reference` (from body_fill) holds. */
bool body_read(const unsigned char *body, const unsigned char *reference, size_t size, body_head_t *head);

uint64_t sizes_at(const sizes_t *sizes, uint64_t sequence);
uint64_t sizes_largest(const sizes_t *sizes);

/* The largest of the sizes that a message of so many bytes can hold, 0 when there is none: what a broker adds to a
 * message is smaller than the gap between two sizes. */
uint64_t sizes_fitting(const sizes_t *sizes, uint64_t bytes);

/* Whether that is unambiguous: any two sizes are equal or SIZES_GAP_MIN apart. */
bool sizes_apart(const sizes_t *sizes);

/* How many of `count` messages the producer of this index sends: shares differ by one at most. */
uint64_t body_share(uint64_t count, unsigned producers, unsigned producer);

#endif
