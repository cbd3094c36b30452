/* The JSON object that a run prints, one member a call. */
#ifndef REPORT_H
#define REPORT_H

#include <stdint.h>

#include "histogram.h"
#include "run.h"

void report_open(const run_t *run);
void report_number(const char *name, uint64_t value);
/* first_ns, last_ns, seconds, per_second. The clock starts at the first message, so it counts one less. */
void report_span(uint64_t first_ns, uint64_t last_ns, uint64_t messages);
void report_rate(const char *name, uint64_t first_ns, uint64_t last_ns, uint64_t messages);
void report_histogram(const char *name, const histogram_t *histogram);
/* Closes the object; the exit status of the run. */
int report_close(const run_t *run);

#endif
