// clock.h: time for measurements.

#ifndef CARAT_BASE_CLOCK_H
#define CARAT_BASE_CLOCK_H

// Milliseconds since some fixed moment, never going back.
double clock_ms(void);

#endif
