/* A message that is encoded once and sent many times: each send writes a new head into its body. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *bytes;
  size_t size;
  unsigned char *body; /* inside bytes, at their end */
} message_t;

bool message_encode(message_t *message, uint64_t body_size, bool durable);

#endif
