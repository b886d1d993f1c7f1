/* runner.c - the child's program: calls the student's functions as it is told.
 *   runner "TALK MEMORY"
 * Both are open: a socket to the grader, and the file of the memory that both map. It begins with
 * limits, and ends where a call takes too much processor time. */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "child.h"

/* Ends the process when it has used so much of the processor's time; 0: not any more. */
static void watch(long milliseconds)
{
    const struct itimerval timer = {.it_value = {.tv_usec = milliseconds * 1000}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

int main(int argc, char **argv)
{
    int talk, file;
    if (argc != 2 || sscanf(argv[1], "%d %d", &talk, &file) != 2) return 1;
    char *memory = mmap(NULL, CHILD_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    child_request request;
    const struct rlimit none = {0, 0}; /* what is open stays open, and nothing else can be opened */
    if (memory == MAP_FAILED || setrlimit(RLIMIT_NOFILE, &none) || setrlimit(RLIMIT_FSIZE, &none))
        return 1;
    while (read(talk, &request, sizeof request) == (ssize_t)sizeof request) {
        const child_function *f = child_functions;
        void *a[CHILD_ARRAYS];
        while (f->name && strcmp(f->name, request.function)) f++;
        if (!f->name) return 1;
        for (int i = 0; i < CHILD_ARRAYS; i++)
            a[i] = request.offset[i] < 0 ? NULL : memory + request.offset[i];
        watch(CHILD_MILLISECONDS);
        f->call(request.n, a);
        watch(0);
        const unsigned char answer = CHILD_ANSWER;
        fflush(stdout);
        if (write(talk, &answer, 1) != 1) return 1;
    }
    return 0;
}
