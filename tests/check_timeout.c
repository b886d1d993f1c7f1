/* check_timeout.c - how long a test of a test program may take: so long that only a hang reaches
 * it, by hand and under CTest, whose machine may be busy. Check's own limit is four seconds. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <stdlib.h>

__attribute__((constructor)) static void be_patient(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "3600", 0); /* seconds; on failure it is the four */
}
