#include "ledger.h"

#include <stdlib.h>

#include "body.h"

bool ledger_open(ledger_t *ledger, uint64_t count, unsigned producers) {
  *ledger = (ledger_t){.count = count, .producers = producers};
  ledger->bits = calloc(count / 64 + 1, sizeof(uint64_t));
  ledger->first_bit = calloc(producers, sizeof(uint64_t));
  ledger->next = calloc(producers, sizeof(uint64_t));
  if (!ledger->bits || !ledger->first_bit || !ledger->next) return false;
  for (unsigned i = 1; i < producers; i++)
    ledger->first_bit[i] = ledger->first_bit[i - 1] + body_share(count, producers, i - 1);
  return true;
}

void ledger_note(ledger_t *ledger, uint32_t producer, uint32_t sequence) {
  if (producer >= ledger->producers || sequence >= body_share(ledger->count, ledger->producers, producer)) {
    ledger->unexpected++;
    return;
  }
  uint64_t at = ledger->first_bit[producer] + sequence, mask = 1ull << (at % 64);
  if (ledger->bits[at / 64] & mask) {
    ledger->duplicates++;
    return;
  }
  ledger->bits[at / 64] |= mask;
  ledger->received++;
  if (sequence < ledger->next[producer]) ledger->out_of_order++;
  else ledger->next[producer] = (uint64_t)sequence + 1;
}

void ledger_close(ledger_t *ledger) {
  free(ledger->bits);
  free(ledger->first_bit);
  free(ledger->next);
}
