/* group_files.h - the files in a group's folder, by which its ranks meet and see how
 * the others are.
 *
 *     .rank-N    of each rank, which has it locked: its host, a number that it has drawn, how it is
 *     .start     of rank 0: the number of this start, the transport's id, and the numbers of the
 *                ranks whose files it has seen (group_meet.c)
 *     .memory    what ranks of one host share (group_cpu.c); named only until all have it */
#ifndef GRADUS_GROUP_FILES_H
#define GRADUS_GROUP_FILES_H

#include "group/group.h"

enum { GD_GROUP_WHY = 600, GD_GROUP_FAULT = 200 };

extern const char gd_group_magic[8];

typedef enum gd_rank_state { GD_RANK_IN, GD_RANK_LEFT, GD_RANK_FAILED } gd_rank_state;

/* The contents of .rank-N. */
typedef struct gd_rank_file {
    char magic[8], version[16], host[GD_OS_HOST];
    int32_t ranks;
    uint8_t own[GD_GROUP_NUMBER];
    uint8_t start[GD_GROUP_NUMBER]; /* of which it is part; zeros: of none yet */
    int64_t beat;                   /* changes while the rank waits */
    int32_t state;
    char why[GD_GROUP_WHY]; /* it has failed */
} gd_rank_file;

typedef struct gd_rank_name {
    char text[32];
} gd_rank_name;
gd_rank_name gd_rank_name_of(int rank);

/* Opens a file of the folder: only one that this user alone could have made, of so many bytes. -1:
 * `why` says what is wrong with it, "" if it is not there. */
int gd_group_open(const gd_group *group, const char *name, size_t bytes, char why[GD_GROUP_FAULT]);

/* Makes a file, of `zeros` zeros after the data, under a temporary name: it gets its own once it is
 * whole. -1 on error. Close it. */
int gd_group_make(const gd_group *group, const char *name, const void *data, size_t bytes,
                  size_t zeros);

/* Makes this rank's file, and locks it. A rank of a run that is ending is waited for. */
gd_status gd_group_take_file(gd_group *group);

/* Writes this rank's file. Other hosts see it after a flush; on one host none is needed. */
bool gd_rank_write(const gd_group *group, const gd_rank_file *own, bool flush);

/* Reads that of a rank. False: it is none, or not whole yet. */
bool gd_rank_read(int file, gd_rank_file *f);

/* Keeps the file of a rank open if it is part of this start; else it is an earlier run's, or the
 * rank has not read .start yet. */
bool gd_rank_keep(gd_group *group, int rank, int file, const gd_rank_file *f);

/* Removes the names of this rank's files. */
void gd_group_remove_files(const gd_group *group);

/* The error that this rank cannot meet the others. */
gd_status gd_group_fail_in(const gd_group *group, const char *name, const char *why);

#endif
