/* Sends the count, as fast as credit and the in-flight bound allow or at a rate, and accounts for every answer. */
#ifndef SENDER_H
#define SENDER_H

#include "options.h"

int sender_run(const options_t *options);

#endif
