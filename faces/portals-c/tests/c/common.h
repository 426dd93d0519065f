/* What the test programs have in common: checks that name the line, and two processes that know
 * each other's physical id. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <portals4.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *side = "one";
#define CHECK(what)                                                             \
    do {                                                                        \
        if (!(what)) {                                                          \
            fprintf(stderr, "%s, line %d: %s\n", side, __LINE__, #what);         \
            exit(1);                                                            \
        }                                                                       \
    } while (0)
#define IS(call, wanted)                                                                     \
    do {                                                                                     \
        long found_ = (long)(call), wanted_ = (long)(wanted);                                \
        if (found_ != wanted_) {                                                             \
            fprintf(stderr, "%s, line %d: %s is %ld and not %ld\n", side, __LINE__, #call,    \
                    found_, wanted_);                                                        \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)
#define OK(call) IS(call, PTL_OK)

/* To the other process. */
static int line __attribute__((unused)) = -1;
static pid_t child __attribute__((unused));

static inline void say(const void *what, size_t len)
{
    CHECK(write(line, what, len) == (ssize_t)len);
}
static inline void hear(void *what, size_t len)
{
    CHECK(recv(line, what, len, MSG_WAITALL) == (ssize_t)len);
}
/* Both are here. */
static inline void meet(void)
{
    char c = 'x';
    say(&c, 1);
    hear(&c, 1);
}

/* Makes another process: 0 in the parent, 1 in the child, which ends with its parent. */
static inline int divide(void)
{
    int lines[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, lines) == 0);
    child = fork();
    CHECK(child >= 0);
    int which = child == 0;
    if (which) prctl(PR_SET_PDEATHSIG, SIGKILL);
    side = which ? "B" : "A";
    line = lines[which];
    close(lines[!which]);
    return which;
}

/* The child ends well, and the parent sees that. */
static inline void unite(int which)
{
    if (which) exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* An event of this kind is next, and a success. */
static inline ptl_event_t next(ptl_handle_eq_t eq, int kind)
{
    ptl_event_t event;
    unsigned which;
    OK(PtlEQPoll(&eq, 1, 20000, &event, &which));
    IS(event.type, kind);
    IS(event.ni_fail_type, PTL_NI_OK);
    return event;
}

static inline ptl_event_t next_failed(ptl_handle_eq_t eq, int kind, int why)
{
    ptl_event_t event;
    unsigned which;
    OK(PtlEQPoll(&eq, 1, 20000, &event, &which));
    IS(event.type, kind);
    IS(event.ni_fail_type, why);
    return event;
}

static inline void none(ptl_handle_eq_t eq)
{
    ptl_event_t event;
    IS(PtlEQGet(eq, &event), PTL_EQ_EMPTY);
}

static inline ptl_process_t any_rank(void)
{
    ptl_process_t id;
    memset(&id, 0, sizeof id);
    id.rank = PTL_RANK_ANY;
    return id;
}

static inline ptl_process_t any_process(void)
{
    ptl_process_t id;
    id.phys.nid = PTL_NID_ANY;
    id.phys.pid = PTL_PID_ANY;
    return id;
}

static inline ptl_me_t entry(void *start, ptl_size_t length, ptl_match_bits_t bits, unsigned options)
{
    ptl_me_t me;
    memset(&me, 0, sizeof me);
    me.start = start;
    me.length = length;
    me.ct_handle = PTL_CT_NONE;
    me.uid = PTL_UID_ANY;
    me.options = options;
    me.match_id = any_rank();
    me.match_bits = bits;
    return me;
}

static inline ptl_handle_md_t bind_md(ptl_handle_ni_t ni, void *start, ptl_size_t length,
                                      unsigned options, ptl_handle_eq_t eq, ptl_handle_ct_t ct)
{
    ptl_md_t md;
    ptl_handle_md_t handle;
    md.start = start;
    md.length = length;
    md.options = options;
    md.eq_handle = eq;
    md.ct_handle = ct;
    OK(PtlMDBind(ni, &md, &handle));
    return handle;
}

#endif
