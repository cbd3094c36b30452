/* Which messages have arrived: one bit for each, by producer and sequence. Counts what should not happen: a second
 * arrival, a message that nobody sent, one that overtook another of its producer. */
#ifndef LEDGER_H
#define LEDGER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  uint64_t count;
  unsigned producers;
  uint64_t *bits;
  uint64_t *first_bit; /* by producer */
  uint64_t *next;      /* by producer: the sequence that keeps its order */
  uint64_t received, duplicates, unexpected, out_of_order;
} ledger_t;

bool ledger_open(ledger_t *ledger, uint64_t count, unsigned producers);
void ledger_note(ledger_t *ledger, uint32_t producer, uint32_t sequence);
void ledger_close(ledger_t *ledger);

#endif
