/* Many queues. `scatter` makes them by a message to each; `attach` puts a receiver on each and, once all are attached,
 * expects one message on each. Queues are numbered; so are messages, and each must come from the queue of its number. */
#ifndef MANY_H
#define MANY_H

#include "options.h"

int scatter_run(const options_t *options);
int attach_run(const options_t *options);

#endif
