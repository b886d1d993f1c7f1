/* process_posix.c - see process.h. */
#define _GNU_SOURCE /* sched_getaffinity, getentropy */
#include "platform/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <sys/event.h>
#include <sys/random.h>
#endif

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* ---- This process --------------------------------------------------------------------------- */

const char gd_os_nowhere[] = "/dev/null";

char **gd_os_begin(char **argv)
{
    for (int next = 0; next >= 0 && next <= STDERR_FILENO;) {
        next = open(gd_os_nowhere, O_RDONLY);
        if (next > STDERR_FILENO) close(next);
    }
    signal(SIGXFSZ, SIG_IGN);
    return argv;
}

/* The program's own file. */
static bool own_path(char path[PATH_MAX])
{
#ifdef __APPLE__
    uint32_t room = PATH_MAX;
    return !_NSGetExecutablePath(path, &room);
#else
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) path[length] = '\0';
    return length > 0;
#endif
}

/* Runs the program by its own path, which gives the process its name; goes on as it is if
 * that fails. */
void gd_os_restart_with(const char *const *variables, char **argv)
{
    char path[PATH_MAX];
    for (; variables[0]; variables += 2) {
        if (setenv(variables[0], variables[1], 0)) return;
    }
    if (own_path(path)) execv(path, argv);
}

void *gd_os_load(const char *path, const char *symbol, char *why, size_t size)
{
    char here[PATH_MAX]; /* a name without a slash would be searched in the system's folders */
    snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *object = dlopen(here, RTLD_NOW), *address = object ? dlsym(object, symbol) : NULL;
    if (!address) snprintf(why, size, "%s", dlerror());
    return address;
}

bool gd_os_set_variable(const char *name, const char *value)
{
    return !setenv(name, value, 1);
}

_Noreturn void gd_os_leave(int status)
{
    _exit(status);
}

int64_t gd_os_process(void)
{
    return getpid();
}

int gd_os_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

bool gd_os_random(void *bytes, size_t count)
{
    return !getentropy(bytes, count);
}

void gd_os_on_fork(void (*note)(void))
{
    pthread_atfork(NULL, NULL, note);
}

/* ---- Requests to stop ----------------------------------------------------------------------- */

static const int requests[] = {SIGINT, SIGTERM, SIGHUP};

static sigset_t set_of_requests(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) sigaddset(&set, requests[i]);
    return set;
}

static void watch(int number, const struct sigaction *action)
{
    struct sigaction before;
    const bool ignorable = number == SIGHUP || number == SIGPIPE;
    if (!ignorable || sigaction(number, NULL, &before) || before.sa_handler != SIG_IGN)
        sigaction(number, action, NULL);
}

/* All are blocked while one is noted. */
void gd_os_watch_stop(void (*note)(int number), void (*note_pipe)(int number))
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    action.sa_mask = set_of_requests();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) watch(requests[i], &action);
    action.sa_handler = note_pipe;
    watch(SIGPIPE, &action);
}

/* The default action is taken after the handler returns. */
void gd_os_stop(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

void gd_os_ignore(int number)
{
    signal(number, SIG_IGN);
}

void gd_os_write_signal(int descriptor, const char *text, size_t length)
{
    const ssize_t written = write(descriptor, text, length);
    (void)written; /* a handler can do nothing about it */
}

/* ---- Processes that it starts --------------------------------------------------------------- */

static sigset_t held_back, mask_before;

void gd_os_hold_signals(void)
{
    held_back = set_of_requests();
    sigaddset(&held_back, SIGCHLD);
    sigprocmask(SIG_BLOCK, &held_back, &mask_before);
}

static void release_signals(void)
{
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

#ifdef __APPLE__

/* There is no sigtimedwait, and SIGCHLD is not held back where nobody handles it: so it looks every
 * 20 ms. */
int gd_os_wait_signal(void)
{
    const struct timespec moment = {0, 20000000};
    sigset_t pending;
    int number = 0;
    nanosleep(&moment, NULL);
    if (sigpending(&pending)) return 0;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (!sigismember(&pending, requests[i])) continue;
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, requests[i]);
        return sigwait(&one, &number) ? 0 : number;
    }
    return 0;
}

#else

int gd_os_wait_signal(void)
{
    const struct timespec second = {1, 0};
    const int number = sigtimedwait(&held_back, NULL, &second);
    return number > 0 && number != SIGCHLD ? number : 0;
}

#endif

#ifdef __APPLE__

/* A thread that waits for the parent's end, of which the system says nothing by itself. */
static void *watch_parent(void *parent)
{
    struct kevent wanted, ended;
    const int queue = kqueue();
    int count;
    EV_SET(&wanted, (uintptr_t)parent, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, NULL);
    do count = kevent(queue, &wanted, 1, &ended, 1, NULL);
    while (count < 0 && errno == EINTR);
    if (count > 0) kill(getpid(), SIGTERM); /* it has ended, or had before */
    return NULL;
}

#endif

/* SIGTERM, so that a child saves and exits. The requests are still held back: they are not for the
 * thread. */
static void end_with_parent(pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#elif defined(__APPLE__)
    pthread_t watcher;
    if (!pthread_create(&watcher, NULL, watch_parent, (void *)(intptr_t)parent))
        pthread_detach(watcher);
#endif
    if (getppid() != parent) raise(SIGTERM);
}

int64_t gd_os_fork(void)
{
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        end_with_parent(parent);
        release_signals();
    }
    return child;
}

void gd_os_signal(int64_t child, int number)
{
    kill((pid_t)child, number);
}

void gd_os_ask_to_stop(int64_t child)
{
    kill((pid_t)child, SIGTERM);
}

void gd_os_kill(int64_t child)
{
    kill((pid_t)child, SIGKILL);
}

int64_t gd_os_reap(int *status, int *number)
{
    int told;
    const pid_t child = waitpid(-1, &told, WNOHANG);
    if (child <= 0) return 0;
    *number = WIFSIGNALED(told) ? WTERMSIG(told) : 0;
    *status = *number ? 128 + *number : WEXITSTATUS(told);
    return child;
}

const char *gd_os_signal_name(int number)
{
    return strsignal(number);
}
