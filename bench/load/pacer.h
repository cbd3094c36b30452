/* Wakes the connections at short, even intervals from a thread of its own: the proactor's timer has whole milliseconds,
 * and five messages at once every millisecond are another load than one every 200 µs. */
#ifndef PACER_H
#define PACER_H

#include "run.h"

void pacer_start(run_t *run);
void pacer_stop(void);

#endif
