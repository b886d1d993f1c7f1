/* student.c - compiles a student's file, looks at what it needs, and talks to the children. */
#define _XOPEN_SOURCE 700

#include "student.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

enum {
    MARGIN = 4096,    /* bytes on either side of an array that must stay as they are */
    OUTPUT = 1 << 15, /* what is read of a compiler's output */
    NAME = 4096,      /* of a file, at most; of which scanf below takes one less */
    PATIENCE = 120    /* seconds; a child that sleeps takes no processor time */
};

__attribute__((format(printf, 2, 3))) static const char *say(student *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
    return s->why;
}

/* ---- Compiling ---------------------------------------------------------------------------- */

static const char *variable(const char *name, const char *unset)
{
    const char *value = getenv(name);
    return value && *value ? value : unset;
}

/* A sanitizer takes constructors, and terabytes of addresses. */
static bool is_sanitized(void)
{
    return strstr(variable("CFLAGS", ""), "-fsanitize") != NULL;
}

/* Whether a command succeeds, within seconds, blocks of 512 bytes, and KiB; `output` is its own. */
__attribute__((format(printf, 2, 3))) static bool run(char output[OUTPUT], const char *format, ...)
{
    char command[8192] = "{ ulimit -t 120; ulimit -f 65536; ulimit -v 4194304; } 2>/dev/null; ";
    const size_t begin = strlen(command), most = sizeof command - begin;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(command + begin, most, format, args);
    va_end(args);
    output[0] = 0;
    FILE *pipe = length < (int)most ? popen(command, "r") : NULL;
    if (!pipe) return false;
    size_t used = fread(output, 1, OUTPUT - 1, pipe);
    output[used] = 0;
    for (char rest[512]; fread(rest, 1, sizeof rest, pipe) > 0;) continue;
    return pclose(pipe) == 0;
}

/* The first line with a word, from a name in it on, or from the word; without the word the
 * first line. */
static const char *line_from(char *output, const char *word, const char *name)
{
    char *at = strstr(output, word);
    if (!at) at = output;
    char *line = at;
    while (line > output && line[-1] != '\n') line--;
    at[strcspn(at, "\n")] = 0;
    const char *from = strstr(line, name);
    return from ? from : at;
}

/* Whether a file lies in one of the folders in which the compiler looks for headers in <>, of which
 * `searched` tells, as it says it with -v. */
static bool is_header(const char *path, const char *searched)
{
    bool found = false;
    const char *line = strstr(searched, "<...>");
    while (line && !found && (line = strchr(line, '\n')) && line[1] == ' ') {
        char name[NAME] = "";
        sscanf(++line, " %4095[^\n]", name);
        char *folder = realpath(name, NULL);
        const size_t length = folder ? strlen(folder) : 0;
        found = length && !strncmp(path, folder, length) && path[length] == '/';
        free(folder);
    }
    return found;
}

/* Looks at what the compiler has read, however it was included: at a rule of make, in which a space
 * in a name has a backslash before it. */
static const char *look_at_files(student *s, const char *calls, const char *object)
{
    static char searched[OUTPUT];
    const char *const own[] = {calls, s->path, COURSE_FOLDER "/course.h",
                               COURSE_FOLDER "/grader/calls.c", COURSE_FOLDER "/grader/child.h"};
    char name[NAME], word[NAME];
    snprintf(name, sizeof name, "%s.d", object);
    FILE *rule = fopen(name, "r");
    if (!rule || !run(searched, "LC_ALL=C %s %s -E -v -x c /dev/null 2>&1",
                      variable("CC", COURSE_CC), variable("CFLAGS", "")))
        say(s, "%s cannot be graded: the compiler does not say what it includes", s->file);
    for (size_t used = 0; !s->why[0] && fscanf(rule, "%4095s", word) == 1;) {
        used += (size_t)snprintf(name + used, sizeof name - used, "%s", word);
        const bool goes_on = used < sizeof name && name[used - 1] == '\\';
        if (goes_on) name[used - 1] = used > 1 ? ' ' : 0;
        if (goes_on && used > 1) continue;
        used = 0;
        char *path = realpath(name, NULL);
        bool fine = goes_on || !strcmp(name, "files:") || (path && is_header(path, searched));
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            fine = fine || !strcmp(name, own[i]) || (path && !strcmp(path, own[i]));
        free(path);
        if (!fine)
            say(s, "%s includes %s; it may include course.h and the system's headers alone",
                s->file, name);
    }
    if (rule) fclose(rule);
    return s->why[0] ? s->why : NULL;
}

/* What a file may need of libc, and all of libm, for doubles: nothing of it reaches a file or a
 * process besides the child's own. */
static const char allowed[] = " abort abs aligned_alloc assert_fail assert_rtn bsearch bzero "
                              "calloc errno errno_location error "
                              "exit fflush fprintf fputc fputs free fwrite labs llabs malloc "
                              "memchr memcmp memcpy memmove memset "
                              "memset_pattern16 printf putc putchar puts qsort rand realloc "
                              "sincos_stret snprintf sprintf srand "
                              "stack_chk_fail stack_chk_guard stderr stderrp stdout stdoutp strcat "
                              "strchr strcmp strcpy strlen "
                              "strncmp strncpy vfprintf vprintf vsnprintf "
                              "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh "
                              "erf erfc exp exp10 exp2 expm1 "
                              "fabs fdim finite floor fma fmax fmin fmod fpclassify frexp hypot "
                              "ilogb isinf isnan ldexp lgamma "
                              "llrint llround log log10 log1p log2 logb lrint lround modf nan "
                              "nearbyint nextafter nexttoward pow "
                              "remainder remquo rint round scalbln scalbn signbit sin sincos sinh "
                              "sqrt tan tanh tgamma trunc ";

/* Whether a name is one of these, as float or long double, too, and as compilers call it, who also
 * need functions of their own: __printf_chk, __divti3, __aeabi_ldivmod, __asan_init. */
static bool is_allowed(const char *name)
{
    const char *plain = name + strspn(name, "_"), *check = strstr(plain, "_chk");
    int length = (int)strlen(plain);
    char word[256];
    const char *mode = length > 3 ? plain + length - 3 : "   ";
    const bool of_modes =
        strchr("sdtxhkb", *mode) && strchr("ifc", mode[1]) && strchr("234", mode[2]);
    if (!strncmp(name, "__", 2) &&
        (of_modes || !strncmp(plain, "aeabi_", 6) || strstr(plain, "san_")))
        return true;
    if (check && !check[4]) length -= 4;
    for (int cut = 0; cut < 2 && length > cut; cut++) {
        snprintf(word, sizeof word, " %.*s ", length - cut, plain);
        if (strstr(allowed, word) && (!cut || strchr("fl", plain[length - 1]))) return true;
    }
    return !strcmp(name, "_GLOBAL_OFFSET_TABLE_");
}

/* Looks at the object's undefined symbols: `symbols` has lines of "name U". */
static const char *look_at_symbols(student *s, const char *symbols)
{
    char name[256];
    for (const char *line = symbols; line && sscanf(line, "%255s", name) == 1;) {
        if (!is_allowed(name))
            return say(s, "%s needs %s; it may need libm, and what allocates, sorts or prints",
                       s->file, name);
        if ((line = strchr(line, '\n'))) line++;
    }
    return NULL;
}

/* How compilers mark what they pass on to the assembler as it is, and the assembler's words by which
 * it reads a file, or makes such words: a name of a section or a function may hide them. */
#define ASSEMBLY \
    "(#|//|@|;) *(APP|InlineAsm)|inline asm|inline assembly|\\.(incbin|include|macro|irp|mri)"

/* Prints what no compiler makes of C: a section of another name, in which numbers may be code, or
 * pointers to what runs before main or after it, or a function that is chosen when it is linked. */
#define SECTIONS                                                                       \
    "LC_ALL=C tr -d '\\000' <'%s.s' | grep -E 'section|indirect_function' | grep -Ev " \
    "'section[[:space:]]+\"?(__[A-Z]+,__[^m]|\\.text\\.[a-z_]+(,\"ax\"|$)|"            \
    "\\.(rodata|data|t?bss|tdata|debug_|note\\.|comment|eh_frame))'"

static const char *compile(student *s, const char *calls, bool is_float)
{
    static char output[OUTPUT];
    char object[sizeof s->work + 16];
    const char *cc = variable("CC", COURSE_CC), *flags = variable("CFLAGS", "");
    snprintf(object, sizeof object, "%s/%s", s->work, is_float ? "float" : "double");
    if (!run(output,
             "LC_ALL=C %s -std=c11 -O1 -g %s -Werror=implicit-function-declaration "
             "-Werror=incompatible-pointer-types %s '-DCOURSE_FILE=\"%s\"' '-DCOURSE_CALLS=\"%s\"' "
             "'-I%s' -MD -MT files -MF '%s.d' -S '%s/grader/calls.c' -o '%s.s' 2>&1",
             cc, flags, is_float ? "-DCOURSE_FLOAT" : "", s->path, calls, COURSE_FOLDER, object,
             COURSE_FOLDER, object))
        return say(s, "%s does not compile: %s", s->file, line_from(output, "error", s->file));
    if (look_at_files(s, calls, object)) return s->why;
    if (run(output, "grep -Eiq '" ASSEMBLY "' '%s.s'", object))
        return say(s, "%s has words for the assembler; it may be C alone", s->file);
    if (!is_sanitized() && run(output, SECTIONS, object))
        return say(s, "%s names a section, or runs before its functions are called", s->file);
    if (!run(output, "LC_ALL=C %s %s -c '%s.s' -o '%s.o' 2>&1", cc, flags, object, object))
        return say(s, "%s does not compile: %s", s->file, line_from(output, "rror", s->file));
    if (!run(output, "%s -u -P '%s.o'", variable("NM", "nm"), object))
        return say(s, "%s cannot be graded: nm, which lists its symbols, does not run", s->file);
    if (look_at_symbols(s, output)) return s->why;
    if (!run(output, "LC_ALL=C %s -std=c11 -O1 -g %s '%s.o' '%s/grader/runner.c' -o '%s' -lm 2>&1",
             cc, flags, object, COURSE_FOLDER, object))
        return say(s, "%s cannot be linked with libc and libm alone: %s", s->file,
                   line_from(output, "multiple", "multiple"));
    return NULL;
}

const char *student_begin(student *s, const char *path, const char *calls)
{
    const char *folder = variable("TMPDIR", "/tmp"), *slash = strrchr(path, '/');
    *s = (student){.file = slash ? slash + 1 : path, .memory_file = -1};
    s->path = realpath(path, NULL);
    if (!s->path) return say(s, "%s cannot be read: %s", path, strerror(errno));
    if (strpbrk(s->path, "'\"\\$#"))
        return say(s, "%s cannot be graded: its path has a quote, a backslash, a $ or a #",
                   s->path);
    const int length = snprintf(s->work, sizeof s->work, "%s/course.XXXXXX", folder);
    if (length >= (int)sizeof s->work - 16 || !mkdtemp(s->work)) {
        s->work[0] = 0;
        return say(s, "a folder for what is compiled cannot be made in %s", folder);
    }
    FILE *file = tmpfile();
    s->memory_file = file ? dup(fileno(file)) : -1;
    if (file) fclose(file);
    void *memory = MAP_FAILED;
    if (s->memory_file >= 0 && !ftruncate(s->memory_file, CHILD_SHARED))
        memory = mmap(NULL, CHILD_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, s->memory_file, 0);
    if (memory == MAP_FAILED)
        return say(s, "there is no memory to share with a child: %s", strerror(errno));
    s->memory = memory;
    signal(SIGPIPE, SIG_IGN); /* a child that has ended is found when its answer is read */
    return compile(s, calls, false) || compile(s, calls, true) ? s->why : NULL;
}

/* ---- A child ------------------------------------------------------------------------------ */

/* Ends a child, and returns its status: that of its own end, where it has ended before. */
static int end_child(student_child *c)
{
    int status = 0;
    kill((pid_t)c->pid, SIGKILL);
    while (waitpid((pid_t)c->pid, &status, 0) < 0 && errno == EINTR) continue;
    close(c->talk), close(c->output);
    c->pid = 0;
    return status;
}

void student_end(student *s)
{
    char output[OUTPUT];
    for (int i = 0; i < 2; i++)
        if (s->child[i].pid) end_child(&s->child[i]);
    if (s->memory) munmap(s->memory, CHILD_SHARED);
    if (s->memory_file >= 0) close(s->memory_file);
    if (s->work[0]) run(output, "rm -r '%s'", s->work);
    free((void *)(uintptr_t)s->path);
}

static bool limit(int resource, rlim_t most)
{
    return setrlimit(resource, &(struct rlimit){most, most}) == 0;
}

/* Limits of all that runs in the child, from its program's first instruction on. */
static bool be_limited(void)
{
    const struct itimerval timer = {.it_value = {.tv_usec = CHILD_MILLISECONDS * 1000L}};
    return limit(RLIMIT_CORE, 0) && limit(RLIMIT_CPU, PATIENCE) &&
           (is_sanitized() || limit(RLIMIT_AS, (rlim_t)CHILD_MEBIBYTES << 20)) &&
           setitimer(ITIMER_PROF, &timer, NULL) == 0;
}

/* In the child: it talks to the grader, and the grader reads what it prints. */
static void become_child(const student *s, bool is_float, int talk, int output)
{
    char program[sizeof s->work + 16], numbers[32];
    snprintf(program, sizeof program, "%s/%s", s->work, is_float ? "float" : "double");
    snprintf(numbers, sizeof numbers, "%d %d", talk, s->memory_file);
    const int nothing = open("/dev/null", O_RDONLY);
    signal(SIGPIPE, SIG_DFL);
    if (be_limited() && nothing >= 0 && dup2(nothing, 0) == 0 && dup2(output, 1) == 1 &&
        dup2(output, 2) == 2)
        execl(program, program, numbers, (char *)NULL);
    _exit(1);
}

static bool start_child(student *s, bool is_float)
{
    int talk[2] = {-1, -1}, output[2] = {-1, -1};
    /* What another child inherited would keep these open after this one's end. */
    const bool fine = socketpair(AF_UNIX, SOCK_STREAM, 0, talk) == 0 && pipe(output) == 0 &&
                      fcntl(talk[0], F_SETFD, FD_CLOEXEC) == 0 &&
                      fcntl(output[0], F_SETFD, FD_CLOEXEC) == 0 &&
                      fcntl(output[0], F_SETFL, O_NONBLOCK) == 0;
    const pid_t pid = fine ? fork() : -1;
    if (pid == 0) become_child(s, is_float, talk[1], output[1]);
    for (int own = 0; own < 2; own++) {
        if (own == 0 && pid > 0) continue;
        if (talk[own] >= 0) close(talk[own]);
        if (output[own] >= 0) close(output[own]);
    }
    if (pid > 0) s->child[is_float] = (student_child){pid, talk[0], output[0]};
    return pid > 0;
}

/* Reads what the child prints, so that it never waits for a reader, and notes its first line. */
static void read_output(student *s, const student_child *c, const char *function)
{
    char text[1024];
    ssize_t size;
    while ((size = read(c->output, text, sizeof text - 1)) > 0) {
        text[size] = 0;
        text[strcspn(text, "\n")] = 0;
        for (char *p = text; *p; p++)
            if ((unsigned char)*p < ' ') *p = ' ';
        if (!s->printed[0])
            snprintf(s->printed, sizeof s->printed,
                     "%s printed \"%.200s\": what a function prints is not graded", function, text);
    }
}

/* Says how the child ended. */
static const char *say_end(student *s, student_child *c, const char *function)
{
    const int status = end_child(c);
    if (!WIFSIGNALED(status))
        return say(s, "%s ended the program, with status %d: a function returns", function,
                   WEXITSTATUS(status));
    const int number = WTERMSIG(status);
    if (number == SIGPROF || number == SIGXCPU)
        return say(
            s, "%s did not return within %g s of processor time: is there a loop without an end?",
            function, CHILD_MILLISECONDS / 1000.0);
    if (number == SIGSEGV || number == SIGBUS)
        return say(s, "%s crashed: it read or wrote at an address that is not its own", function);
    if (number == SIGFPE) return say(s, "%s crashed: it divided a whole number by zero", function);
    if (number == SIGABRT)
        return say(s, "%s called abort, or libc found its memory damaged", function);
    return say(s, "%s was ended by signal %d", function, number);
}

/* Waits for the child's answer. NULL, or what happened instead. */
static const char *wait_for_answer(student *s, student_child *c, const char *function)
{
    struct pollfd files[2] = {{.fd = c->talk, .events = POLLIN},
                              {.fd = c->output, .events = POLLIN}};
    unsigned char answer = 0;
    for (;;) {
        const int ready = poll(files, 2, PATIENCE * 1000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            end_child(c);
            return say(s, "%s did not return within %d s: does it wait for something?", function,
                       (int)PATIENCE);
        }
        if (files[1].revents & POLLIN) read_output(s, c, function);
        if (files[1].revents & ~POLLIN) files[1].fd = -1; /* it has closed its output */
        if (!files[0].revents) continue;
        const ssize_t size = read(c->talk, &answer, 1);
        read_output(s, c, function);
        return size == 1 && answer == CHILD_ANSWER ? NULL : say_end(s, c, function);
    }
}

/* ---- Arrays ------------------------------------------------------------------------------- */

/* What is beside an array, by elements: a NaN that is another one after any arithmetic with it, so
 * that reading it is seen in the results, and adding to it in the margin. */
static const void *mark(size_t size)
{
    static const uint64_t wide = UINT64_C(0x7ff45a5a5a5a5a5a);
    static const uint32_t narrow = UINT32_C(0x7fa55a5a);
    return size == sizeof wide ? (const void *)&wide : &narrow;
}

/* Places each array in the shared memory between two margins, and fills both. */
static bool place(student *s, const student_array *arrays, int count, child_request *request)
{
    size_t at = 0;
    for (int i = 0; i < CHILD_ARRAYS; i++) request->offset[i] = -1;
    for (int i = 0; i < count; i++) {
        const student_array *a = &arrays[i];
        const size_t bytes = (size_t)a->count * a->size,
                     whole = (bytes + 63) / 64 * 64 + 2 * MARGIN;
        if (!a->data) continue;
        if (bytes > CHILD_SHARED || at + whole > CHILD_SHARED) return false;
        for (size_t k = 0; k < whole; k += a->size)
            memcpy(s->memory + at + k, mark(a->size), a->size);
        request->offset[i] = (int64_t)(at + MARGIN);
        if (bytes) memcpy(s->memory + at + MARGIN, a->data, bytes);
        at += whole;
    }
    return true;
}

/* NULL, or what was written besides what may be. */
static const char *look_at_array(student *s, const char *function, const student_array *a,
                                 int64_t offset)
{
    const int64_t size = (int64_t)a->size;
    for (int64_t i = -MARGIN / size; i < a->count + MARGIN / size; i++) {
        const bool inside = i >= 0 && i < a->count;
        const void *before = inside ? (const char *)a->data + i * size : mark(a->size);
        if ((inside && a->written) || !memcmp(s->memory + offset + i * size, before, a->size))
            continue;
        if (inside)
            return say(s, "%s wrote to %s[%lld], which it may only read", function, a->name,
                       (long long)i);
        return say(s, "%s wrote outside of an array, to %s[%lld]: %s has %lld elements", function,
                   a->name, (long long)i, a->name, (long long)a->count);
    }
    return NULL;
}

const char *student_call(student *s, bool is_float, const char *function, const int64_t *n,
                         const student_array *arrays, int count)
{
    student_child *c = &s->child[is_float];
    child_request request = {.function = ""};
    snprintf(request.function, sizeof request.function, "%s", function);
    memcpy(request.n, n, sizeof request.n);
    if (count > CHILD_ARRAYS || !place(s, arrays, count, &request))
        return say(s, "%s: its arrays do not fit into the memory for them", function);
    if (!c->pid && !start_child(s, is_float))
        return say(s, "%s: a child process cannot be started: %s", function, strerror(errno));
    if (write(c->talk, &request, sizeof request) != (ssize_t)sizeof request)
        return say_end(s, c, function);
    if (wait_for_answer(s, c, function)) return s->why;
    for (int i = 0; i < count; i++)
        if (arrays[i].data && look_at_array(s, function, &arrays[i], request.offset[i]))
            return s->why;
    for (int i = 0; i < count; i++)
        if (arrays[i].data && arrays[i].written && arrays[i].count)
            memcpy(arrays[i].data, s->memory + request.offset[i],
                   (size_t)arrays[i].count * arrays[i].size);
    return NULL;
}
