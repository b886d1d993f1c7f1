/* student.h - a student's file: it is compiled, its symbols are looked at, and its functions are
 * called in a child process. Whatever it does ends in one sentence. */
#ifndef COURSE_STUDENT_H
#define COURSE_STUDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct student_child {
    int64_t pid;      /* 0: none runs */
    int talk, output; /* a socket, and what reads its output */
} student_child;

typedef struct student {
    const char *path, *file; /* of the student's file, and its name */
    char work[512];          /* the folder of what is compiled */
    student_child child[2];  /* with real as double, and as float */
    char *memory;            /* shared with both */
    int memory_file;
    char why[1024];    /* the last sentence */
    char printed[512]; /* what it printed first, as a sentence; "": nothing */
} student;

/* An array that a function reads, or one that it may also write. */
typedef struct student_array {
    const char *name; /* "dx" */
    void *data;       /* NULL: the function gets NULL */
    int64_t count;
    size_t size; /* of an element */
    bool written;
} student_array;

/* Compiles the file, and how an assignment calls it. NULL, or the sentence that says why it
 * cannot be graded. */
const char *student_begin(student *s, const char *path, const char *calls);
void student_end(student *s);

/* Calls a function, with real as float or as double: n has CHILD_SIZES numbers, and the arrays that
 * are written get what the function wrote. NULL, or the sentence that says what it did instead;
 * then the arrays are as they were. */
const char *student_call(student *s, bool is_float, const char *function, const int64_t *n,
                         const student_array *arrays, int count);

#endif
