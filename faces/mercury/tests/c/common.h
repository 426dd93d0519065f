/* What the programs of the tests have in common. A check that fails ends the process. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <mercury.h>
#include <mercury_macros.h>
#include <mercury_proc_string.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call)                                                                                   \
    do {                                                                                           \
        hg_return_t code_ = (call);                                                                \
        if (code_ != HG_SUCCESS) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                HG_Error_to_string(code_));                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

MERCURY_GEN_PROC(sum_in_t, ((hg_const_string_t)(name))((uint32_t)(a))((uint64_t)(b)))
MERCURY_GEN_PROC(sum_out_t, ((hg_const_string_t)(name))((uint64_t)(sum)))
MERCURY_GEN_PROC(text_t, ((hg_string_t)(text)))
MERCURY_GEN_PROC(bulk_in_t, ((hg_bulk_t)(bulk))((uint64_t)(offset))((uint64_t)(len)))
MERCURY_GEN_PROC(number_t, ((uint64_t)(number)))
MERCURY_GEN_PROC(relay_in_t, ((hg_const_string_t)(addr))((hg_bulk_t)(bulk))((uint64_t)(len)))

/* A process with its class, its context, and its calls. */
struct side {
    hg_class_t *class;
    hg_context_t *context;
    hg_id_t null, sum, echo, pull, push, relay, count, oneway, never, fail, end;
};

/* One operation: how often it was called back, and how. */
struct done {
    int times;
    hg_return_t ret;
};

static inline hg_return_t note(const struct hg_cb_info *info)
{
    struct done *done = (struct done *)info->arg;

    done->ret = info->ret;
    __atomic_add_fetch(&done->times, 1, __ATOMIC_RELEASE);
    return HG_SUCCESS;
}

static inline double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One turn of the loop of a program. */
static inline void turn(struct side *side, unsigned int timeout)
{
    unsigned int count;
    hg_return_t ret = HG_Progress(side->context, timeout);

    CHECK(ret == HG_SUCCESS || ret == HG_TIMEOUT);
    while (HG_Trigger(side->context, 0, 16, &count) == HG_SUCCESS && count > 0) {
    }
}

static inline hg_return_t wait_for(struct side *side, struct done *done)
{
    double begin = now();

    while (__atomic_load_n(&done->times, __ATOMIC_ACQUIRE) == 0) {
        turn(side, 100);
        CHECK(now() - begin < 30);
    }
    return done->ret;
}

/* Forwards, and waits. */
static inline hg_return_t call(struct side *side, hg_handle_t handle, void *in)
{
    struct done done = {0, HG_SUCCESS};

    OK(HG_Forward(handle, note, &done, in));
    return wait_for(side, &done);
}

void serve_calls(struct side *side, int fd) __attribute__((noreturn));
void register_calls(struct side *side);

#endif
