/* spin.h - how long the idle threads of a program spin. Part of the programs, not of the library:
 * it belongs to the process. */
#ifndef GRADUS_SPIN_H
#define GRADUS_SPIN_H

/* Threads that wait for others spin for about 50 microseconds, then sleep. OpenMP's defaults are
 * milliseconds, and while other programs keep the processors busy, threads spin where the thread
 * they wait for should run: that takes 4 to 8 times as long. OMP_WAIT_POLICY, GOMP_SPINCOUNT and
 * KMP_BLOCKTIME in the environment have their way.
 *
 * Call it first in main(), with its argv, which ends with NULL: it may start the program anew. */
void spin_briefly(char **argv);

#endif
