/* Receives the count and then listens a little longer: what comes too much is as wrong as what is missing. */
#ifndef RECEIVER_H
#define RECEIVER_H

#include "options.h"

int receiver_run(const options_t *options);

#endif
