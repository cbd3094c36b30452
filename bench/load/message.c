#include "message.h"

#include <proton/codec.h>
#include <proton/message.h>
#include <stdlib.h>

#include "body.h"

enum { SECTIONS_SIZE_MAX = 256 };

bool message_encode(message_t *message, uint64_t body_size, bool durable) {
  unsigned char *body = malloc(body_size);
  size_t size = body_size + SECTIONS_SIZE_MAX;
  pn_message_t *plain = pn_message();
  message->bytes = malloc(size);
  if (!body || !message->bytes || !plain) return false;
  body_fill(body, body_size);
  pn_message_set_durable(plain, durable);
  pn_message_set_inferred(plain, true); /* a data section */
  pn_data_put_binary(pn_message_body(plain), pn_bytes(body_size, (char *)body));
  bool done = pn_message_encode(plain, message->bytes, &size) == 0;
  message->size = size;
  message->body = (unsigned char *)message->bytes + size - body_size;
  pn_message_free(plain);
  free(body);
  return done;
}
