/* Two processes: A sends, B is the target. The argument names the test. */
#include "common.h"
#include <pthread.h>
#include <stdint.h>

#define LONG (1 << 20)

static int which; /* 1: B */
static ptl_handle_ni_t ni;
static ptl_process_t other;
static ptl_handle_eq_t eq;
static ptl_pt_index_t pt;
static int matching = 1, logical = 1;

static void setup(unsigned pt_options, const ptl_ni_limits_t *limits)
{
    ptl_process_t ids[2];
    OK(PtlInit());
    OK(PtlNIInit(PTL_IFACE_DEFAULT,
                 (matching ? PTL_NI_MATCHING : PTL_NI_NO_MATCHING) |
                     (logical ? PTL_NI_LOGICAL : PTL_NI_PHYSICAL),
                 PTL_PID_ANY, limits, NULL, &ni));
    OK(PtlGetPhysId(ni, &ids[which]));
    say(&ids[which], sizeof ids[which]);
    hear(&ids[!which], sizeof ids[0]);
    other = ids[!which];
    if (logical) {
        OK(PtlSetMap(ni, 2, ids));
        other.rank = !which;
    }
    OK(PtlEQAlloc(ni, 256, &eq));
    OK(PtlPTAlloc(ni, pt_options, eq, 3, &pt));
}

static void finish(void)
{
    meet();
    OK(PtlNIFini(ni));
    PtlFini();
}

static ptl_handle_me_t append(void *start, ptl_size_t len, ptl_match_bits_t bits, unsigned options,
                              ptl_list_t list, void *user)
{
    ptl_handle_me_t handle;
    ptl_me_t me = entry(start, len, bits, options);
    if (!logical) me.match_id = any_process();
    if (list == PTL_OVERFLOW_LIST) me.ignore_bits = ~0ull;
    OK(PtlMEAppend(ni, pt, &me, list, user, &handle));
    return handle;
}

/* Short and long, both ways, with acknowledgements; also over an interface without matching. */
static void moves(void)
{
    unsigned char *data = malloc(LONG), *back = malloc(LONG);
    setup(0, NULL);
    memset(data, 0, LONG);
    memset(back, 0, LONG);
    if (which) {
        ptl_handle_me_t handle;
        if (matching) {
            handle = append(data, LONG, 5, PTL_ME_OP_PUT | PTL_ME_OP_GET, PTL_PRIORITY_LIST, data);
        } else {
            ptl_le_t le = {data, LONG, PTL_CT_NONE, PTL_UID_ANY, PTL_LE_OP_PUT | PTL_LE_OP_GET};
            OK(PtlLEAppend(ni, pt, &le, PTL_PRIORITY_LIST, data, &handle));
        }
        next(eq, PTL_EVENT_LINK);
        meet();
        for (ptl_size_t len = 1; len <= LONG; len *= 32) {
            ptl_event_t event = next(eq, PTL_EVENT_PUT);
            CHECK(event.mlength == len && event.start == data && event.user_ptr == data);
            CHECK(logical ? event.initiator.rank == 0 : event.initiator.phys.pid == other.phys.pid);
            CHECK(event.hdr_data == len + 1);
            for (ptl_size_t at = 0; at < len; at++) CHECK(data[at] == (unsigned char)(at * 7 + len));
            event = next(eq, PTL_EVENT_GET);
            CHECK(event.mlength == len);
            /* A changes it after that. */
            meet();
        }
        if (matching) {
            OK(PtlMEUnlink(handle));
        } else {
            OK(PtlLEUnlink(handle));
        }
        OK(PtlPTFree(ni, pt));
    } else {
        ptl_handle_md_t md = bind_md(ni, data, LONG, 0, eq, PTL_CT_NONE);
        ptl_handle_md_t get = bind_md(ni, back, LONG, 0, eq, PTL_CT_NONE);
        meet();
        for (ptl_size_t len = 1; len <= LONG; len *= 32) {
            for (ptl_size_t at = 0; at < len; at++) data[at] = (unsigned char)(at * 7 + len);
            OK(PtlPut(md, 0, len, PTL_ACK_REQ, other, pt, 5, 0, md ? data : NULL, len + 1));
            CHECK(next(eq, PTL_EVENT_SEND).user_ptr == data);
            CHECK(next(eq, PTL_EVENT_ACK).mlength == len);
            OK(PtlGet(get, 0, len, other, pt, 5, 0, back));
            CHECK(next(eq, PTL_EVENT_REPLY).mlength == len);
            CHECK(memcmp(data, back, len) == 0);
            meet();
        }
        OK(PtlMDRelease(md));
        OK(PtlMDRelease(get));
    }
    finish();
    free(data);
    free(back);
}

/* Atomics of both at one number; a triggered answer; counters of bytes. */
static void counts(void)
{
    int64_t number = 0, one = 1, read = 0;
    ptl_handle_ct_t ct;
    ptl_ct_event_t count;
    ptl_handle_me_t handle;
    setup(0, NULL);
    OK(PtlCTAlloc(ni, &ct));
    if (which) {
        ptl_me_t me = entry(&number, 8, 1, PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_CT_COMM);
        me.ct_handle = ct;
        OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, NULL, &handle));
        /* When 100 have come, A gets the sum, without a part of B's program. */
        ptl_handle_md_t md = bind_md(ni, &number, 8, 0, PTL_EQ_NONE, PTL_CT_NONE);
        OK(PtlTriggeredPut(md, 0, 8, PTL_NO_ACK_REQ, other, pt, 2, 0, NULL, 0, ct, 100));
        meet();
        OK(PtlCTWait(ct, 100, &count));
        CHECK(count.success == 100 && count.failure == 0 && number == 100);
        meet();
    } else {
        ptl_handle_ct_t arrived;
        OK(PtlCTAlloc(ni, &arrived));
        ptl_me_t me = entry(&read, 8, 2, PTL_ME_OP_PUT | PTL_ME_EVENT_CT_COMM | PTL_ME_EVENT_CT_BYTES);
        me.ct_handle = arrived;
        OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, NULL, &handle));
        ptl_handle_md_t md = bind_md(ni, &one, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, ct);
        meet();
        for (int at = 0; at < 100; at++)
            OK(PtlAtomic(md, 0, 8, PTL_CT_ACK_REQ, other, pt, 1, 0, NULL, 0, PTL_SUM, PTL_INT64_T));
        OK(PtlCTWait(ct, 100, &count));
        IS(count.failure, 0);
        OK(PtlCTWait(arrived, 8, &count));
        CHECK(count.success == 8 && read == 100);
        meet();
        OK(PtlMDRelease(md));
        OK(PtlMEUnlink(handle));
        OK(PtlCTFree(arrived));
    }
    finish();
}

/* Messages before their entries: searches, and entries that get them. */
static void unexpected(void)
{
    char data[16] = "before", block[256];
    ptl_handle_me_t handle;
    setup(0, NULL);
    if (which) {
        append(block, sizeof block, 0, PTL_ME_OP_PUT | PTL_ME_MANAGE_LOCAL, PTL_OVERFLOW_LIST, block);
        next(eq, PTL_EVENT_LINK);
        meet();
        for (int at = 0; at < 4; at++)
            IS(next(eq, PTL_EVENT_PUT).ptl_list, PTL_OVERFLOW_LIST);
        ptl_handle_ct_t ct;
        ptl_ct_event_t count;
        OK(PtlCTAlloc(ni, &ct));
        ptl_me_t search = entry(NULL, 0, 7, PTL_ME_OP_PUT | PTL_ME_EVENT_CT_OVERFLOW);
        search.ct_handle = ct;
        /* For all: each, oldest first, and a failure at the end. */
        OK(PtlMESearch(ni, pt, &search, PTL_SEARCH_ONLY, &search));
        for (int at = 0; at < 2; at++) {
            ptl_event_t event = next(eq, PTL_EVENT_SEARCH);
            CHECK(event.user_ptr == &search && event.match_bits == 7 && event.rlength == 6);
            CHECK((char *)event.start == block + 12 * at && event.ptl_list == PTL_OVERFLOW_LIST);
        }
        OK(PtlCTGet(ct, &count));
        CHECK(count.success == 2 && count.failure == 1);
        search.match_bits = 9;
        OK(PtlMESearch(ni, pt, &search, PTL_SEARCH_ONLY, &count));
        CHECK(next_failed(eq, PTL_EVENT_SEARCH, PTL_NI_NO_MATCH).user_ptr == &count);
        search.match_bits = 8;
        search.options |= PTL_ME_USE_ONCE;
        OK(PtlMESearch(ni, pt, &search, PTL_SEARCH_DELETE, &search));
        ptl_event_t event = next(eq, PTL_EVENT_PUT_OVERFLOW);
        CHECK(event.match_bits == 8 && event.start == block + 6 && memcmp(event.start, "before", 6) == 0);
        /* An entry for one gets the oldest, and is used up. */
        handle = append(data, sizeof data, 7, PTL_ME_OP_PUT | PTL_ME_USE_ONCE, PTL_PRIORITY_LIST, data);
        event = next(eq, PTL_EVENT_PUT_OVERFLOW);
        CHECK(event.user_ptr == data && event.start == block && event.hdr_data == 100);
        CHECK(next(eq, PTL_EVENT_AUTO_UNLINK).user_ptr == data);
        IS(PtlMEUnlink(handle), PTL_ARG_INVALID);
        meet();
    } else {
        ptl_handle_md_t md = bind_md(ni, data, 6, 0, eq, PTL_CT_NONE);
        meet();
        for (int at = 0; at < 4; at++) {
            OK(PtlPut(md, 0, 6, PTL_ACK_REQ, other, pt, at % 2 ? 8 : 7, 0, NULL, 100 + at));
            next(eq, PTL_EVENT_SEND);
            IS(next(eq, PTL_EVENT_ACK).ptl_list, PTL_OVERFLOW_LIST);
        }
        meet();
    }
    finish();
}

/* A portal with flow control is disabled when nothing takes a message, and enabled again. */
static void flow(void)
{
    char data[8] = "flow", target[8];
    setup(PTL_PT_FLOWCTRL, NULL);
    if (which) {
        meet();
        CHECK(next_failed(eq, PTL_EVENT_PT_DISABLED, PTL_NI_PT_DISABLED).pt_index == pt);
        append(target, 8, 1, PTL_ME_OP_PUT, PTL_PRIORITY_LIST, NULL);
        next(eq, PTL_EVENT_LINK);
        OK(PtlPTEnable(ni, pt));
        meet();
        next(eq, PTL_EVENT_PUT);
        OK(PtlPTDisable(ni, pt));
        meet();
        meet();
    } else {
        ptl_handle_md_t md = bind_md(ni, data, 8, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE);
        meet();
        OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
        next_failed(eq, PTL_EVENT_ACK, PTL_NI_PT_DISABLED);
        meet();
        OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
        next(eq, PTL_EVENT_ACK);
        meet();
        OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
        next_failed(eq, PTL_EVENT_ACK, PTL_NI_PT_DISABLED);
        meet();
    }
    finish();
}

/* Limits of lists, entries and headers. */
static void limits(void)
{
    ptl_ni_limits_t few;
    ptl_handle_any_t handle;
    char data[8] = "";
    memset(&few, 0, sizeof few);
    few.max_list_size = 2;
    few.max_unexpected_headers = 1;
    few.max_cts = 1;
    few.max_eqs = 2;
    few.max_mds = 1;
    few.max_triggered_ops = 1;
    setup(PTL_PT_FLOWCTRL, &few);
    ptl_me_t me = entry(data, 8, 1, PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE);
    me.ignore_bits = ~0ull;
    ptl_handle_md_t md = bind_md(ni, data, 8, 0, eq, PTL_CT_NONE);
    if (which) {
        for (int list = 0; list < 2; list++)
            OK(PtlMEAppend(ni, pt, &me, PTL_OVERFLOW_LIST, NULL, &handle));
        IS(PtlMEAppend(ni, pt, &me, PTL_OVERFLOW_LIST, NULL, &handle), PTL_NO_SPACE);
        ptl_handle_ct_t ct;
        OK(PtlCTAlloc(ni, &ct));
        IS(PtlCTAlloc(ni, &handle), PTL_NO_SPACE);
        OK(PtlEQAlloc(ni, 8, &handle));
        IS(PtlEQAlloc(ni, 8, &handle), PTL_NO_SPACE);
        ptl_ct_event_t one = {1, 0};
        OK(PtlTriggeredCTInc(ct, one, ct, 9));
        IS(PtlTriggeredCTInc(ct, one, ct, 9), PTL_NO_SPACE);
        ptl_md_t more = {data, 8, 0, eq, PTL_CT_NONE};
        IS(PtlMDBind(ni, &more, &handle), PTL_NO_SPACE);
        meet();
        next(eq, PTL_EVENT_PUT);
        next_failed(eq, PTL_EVENT_PT_DISABLED, PTL_NI_PT_DISABLED);
        meet();
    } else {
        meet();
        for (int at = 0; at < 2; at++) OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
        next(eq, PTL_EVENT_SEND);
        next(eq, PTL_EVENT_SEND);
        next(eq, PTL_EVENT_ACK);
        next_failed(eq, PTL_EVENT_ACK, PTL_NI_PT_DISABLED);
        meet();
    }
    finish();
}

/* B is killed, with operations of A's under way and after. Each ends once, with an error. */
static void killed(void)
{
    char *data = calloc(1, LONG);
    setup(0, NULL);
    if (which) {
        append(data, LONG, 1, PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_COMM_DISABLE,
               PTL_PRIORITY_LIST, NULL);
        meet();
        pause();
    }
    ptl_handle_md_t md = bind_md(ni, data, LONG, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE);
    meet();
    OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
    next(eq, PTL_EVENT_ACK);
    CHECK(kill(child, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, &status, 0));
    OK(PtlGet(md, 0, LONG, other, pt, 1, 0, &status));
    OK(PtlPut(md, 0, LONG, PTL_ACK_REQ, other, pt, 1, 0, &status, 0));
    CHECK(kill(child, SIGKILL) == 0);
    int replies = 0, acks = 0, sends = 0;
    while (replies + acks + sends < 3) {
        ptl_event_t event;
        unsigned at;
        OK(PtlEQPoll(&eq, 1, 20000, &event, &at));
        CHECK(event.ni_fail_type == PTL_NI_UNDELIVERABLE && event.user_ptr == &status);
        replies += event.type == PTL_EVENT_REPLY;
        acks += event.type == PTL_EVENT_ACK;
        sends += event.type == PTL_EVENT_SEND;
    }
    CHECK(replies == 1);
    none(eq);
    /* What is started after that ends, too. */
    OK(PtlGet(md, 0, 8, other, pt, 1, 0, &status));
    next_failed(eq, PTL_EVENT_REPLY, PTL_NI_UNDELIVERABLE);
    OK(PtlMDRelease(md));
    OK(PtlNIFini(ni));
    PtlFini();
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    free(data);
}

/* B is stopped: what A has sent arrives when it goes on, and the end of A does not wait for it. */
static void stopped(void)
{
    char data[8] = "stopped";
    setup(0, NULL);
    if (which) {
        append(data, 8, 1, PTL_ME_OP_PUT, PTL_PRIORITY_LIST, NULL);
        next(eq, PTL_EVENT_LINK);
        meet();
        for (int at = 0; at < 100; at++) next(eq, PTL_EVENT_PUT);
        meet();
        pause();
    }
    ptl_handle_md_t md = bind_md(ni, data, 8, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE);
    meet();
    OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
    next(eq, PTL_EVENT_ACK);
    CHECK(kill(child, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    for (int at = 0; at < 99; at++) OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
    ptl_event_t event;
    unsigned at;
    IS(PtlEQPoll(&eq, 1, 20, &event, &at), PTL_EQ_EMPTY);
    IS(PtlMDRelease(md), PTL_IN_USE);
    CHECK(kill(child, SIGCONT) == 0);
    for (int count = 0; count < 99; count++) next(eq, PTL_EVENT_ACK);
    meet();
    /* Stopped again, and never continued. */
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
    OK(PtlNIFini(ni));
    PtlFini();
    CHECK(kill(child, SIGKILL) == 0);
}

/* What was sent arrives, though its sender ends at once. */
static void last(void)
{
    static char data[LONG];
    setup(0, NULL);
    if (which) {
        append(data, LONG, 1, PTL_ME_OP_PUT, PTL_PRIORITY_LIST, NULL);
        next(eq, PTL_EVENT_LINK);
        meet();
        for (int at = 0; at < 50; at++) next(eq, PTL_EVENT_PUT);
        CHECK(data[0] == 50);
        OK(PtlNIFini(ni));
        PtlFini();
        return;
    }
    ptl_handle_md_t md = bind_md(ni, data, LONG, 0, PTL_EQ_NONE, PTL_CT_NONE);
    meet();
    for (int at = 1; at <= 50; at++) {
        data[0] = (char)at;
        OK(PtlPut(md, 0, 1000, PTL_NO_ACK_REQ, other, pt, 1, 0, NULL, 0));
    }
    PtlFini();
}

/* Threads. */
static ptl_handle_eq_t queues[4];
static ptl_handle_ct_t idle;
static int readers;

static void *reader(void *at)
{
    ptl_event_t event;
    ptl_handle_eq_t queue = queues[(size_t)at];
    for (int count = 0; count < 500; count++) {
        OK(PtlEQWait(queue, &event));
        CHECK(event.type == PTL_EVENT_PUT && event.match_bits == (size_t)at);
    }
    __atomic_add_fetch(&readers, 1, __ATOMIC_SEQ_CST);
    /* No more come: until the end, before this call or after. */
    int ended = PtlEQWait(queue, &event);
    CHECK(ended == PTL_ABORTED || ended == PTL_NO_INIT);
    return NULL;
}

static void *waiter(void *at)
{
    int ended;
    ptl_ct_event_t count;
    unsigned found;
    ptl_size_t test = 1;
    ptl_event_t event;
    switch ((size_t)at) {
    case 0: ended = PtlCTWait(idle, 1, &count); break;
    case 1: ended = PtlCTPoll(&idle, &test, 1, PTL_TIME_FOREVER, &count, &found); break;
    default: ended = PtlEQPoll(&eq, 1, PTL_TIME_FOREVER, &event, &found); break;
    }
    CHECK(ended == PTL_ABORTED || ended == PTL_NO_INIT);
    return NULL;
}

static void *sender(void *at)
{
    static char data[4][64];
    ptl_handle_ct_t ct;
    ptl_ct_event_t count;
    OK(PtlCTAlloc(ni, &ct));
    ptl_handle_md_t md = bind_md(ni, data[(size_t)at], 64, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, ct);
    for (int turn = 0; turn < 500; turn++) {
        OK(PtlPut(md, 0, 8, PTL_CT_ACK_REQ, other, 10 + (ptl_pt_index_t)(size_t)at, (size_t)at, 0, NULL, 0));
        if (turn % 10 == 0) OK(PtlCTWait(ct, turn + 1, &count));
    }
    OK(PtlCTWait(ct, 500, &count));
    CHECK(count.failure == 0);
    OK(PtlMDRelease(md));
    OK(PtlCTFree(ct));
    return NULL;
}

static void threads(void)
{
    pthread_t all[7];
    char data[4][8];
    setup(0, NULL);
    if (which) {
        ptl_handle_me_t handle;
        ptl_pt_index_t index;
        OK(PtlCTAlloc(ni, &idle));
        for (size_t at = 0; at < 4; at++) {
            ptl_me_t me = entry(data[at], 8, at, PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE);
            OK(PtlEQAlloc(ni, 1024, &queues[at]));
            OK(PtlPTAlloc(ni, 0, queues[at], 10 + (ptl_pt_index_t)at, &index));
            OK(PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, NULL, &handle));
        }
        for (size_t at = 0; at < 4; at++) CHECK(!pthread_create(&all[at], NULL, reader, (void *)at));
        for (size_t at = 0; at < 3; at++) CHECK(!pthread_create(&all[4 + at], NULL, waiter, (void *)at));
        meet();
        meet();
        while (__atomic_load_n(&readers, __ATOMIC_SEQ_CST) < 4) sched_yield();
        /* The end of the library ends all waits, as PtlAbort does. */
        if (getpid() % 2) PtlAbort();
        PtlFini();
        for (int at = 0; at < 7; at++) CHECK(!pthread_join(all[at], NULL));
        IS(PtlCTFree(idle), PTL_NO_INIT);
        return;
    }
    meet();
    for (size_t at = 0; at < 4; at++) CHECK(!pthread_create(&all[at], NULL, sender, (void *)at));
    for (int at = 0; at < 4; at++) CHECK(!pthread_join(all[at], NULL));
    meet();
    OK(PtlNIFini(ni));
    PtlFini();
}

/* After PtlAbort waits end at once, and others are served all the same. */
static void aborted(void)
{
    char data[8] = "abort";
    ptl_event_t event;
    unsigned at;
    setup(0, NULL);
    if (which) {
        append(data, 8, 1, PTL_ME_OP_PUT, PTL_PRIORITY_LIST, NULL);
        next(eq, PTL_EVENT_LINK);
        PtlAbort();
        IS(PtlEQWait(eq, &event), PTL_ABORTED);
        IS(PtlEQPoll(&eq, 1, 100, &event, &at), PTL_ABORTED);
        IS(PtlEQWait(PTL_INVALID_HANDLE, &event), PTL_ABORTED);
        meet();
        meet();
        OK(PtlEQGet(eq, &event));
        IS(event.type, PTL_EVENT_PUT);
    } else {
        ptl_handle_md_t md = bind_md(ni, data, 8, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE);
        meet();
        OK(PtlPut(md, 0, 8, PTL_ACK_REQ, other, pt, 1, 0, NULL, 0));
        next(eq, PTL_EVENT_ACK);
        meet();
    }
    finish();
}

/* Process numbers that a program chooses: one process has each, and one for all its interfaces. */
static void numbers(void)
{
    const unsigned options = PTL_NI_MATCHING | PTL_NI_PHYSICAL;
    ptl_handle_ni_t second;
    ptl_process_t id;
    ptl_pid_t pid = 1 + (ptl_pid_t)(which ? getppid() : getpid()) % (PTL_PID_MAX - 2);
    OK(PtlInit());
    if (!which) {
        int result = PtlNIInit(PTL_IFACE_DEFAULT, options, pid, NULL, NULL, &ni);
        /* Another test may have it. */
        say(&result, sizeof result);
        if (result == PTL_PID_IN_USE) return;
        OK(result);
        OK(PtlGetPhysId(ni, &id));
        IS(id.phys.pid, pid);
        IS(PtlNIInit(PTL_IFACE_DEFAULT, options, pid + 1, NULL, NULL, &second), PTL_ARG_INVALID);
        IS(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, pid + 1, NULL, NULL,
                     &second), PTL_ARG_INVALID);
        OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, pid, NULL, NULL,
                     &second));
        meet();
        meet();
        PtlFini();
        meet();
    } else {
        int result;
        hear(&result, sizeof result);
        if (result == PTL_PID_IN_USE) return;
        meet();
        IS(PtlNIInit(PTL_IFACE_DEFAULT, options, pid, NULL, NULL, &ni), PTL_PID_IN_USE);
        meet();
        meet();
        /* When its process has ended it is free. */
        OK(PtlNIInit(PTL_IFACE_DEFAULT, options, pid, NULL, NULL, &ni));
        PtlFini();
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    which = divide();
    if (strstr(what, "physical")) logical = 0;
    if (strstr(what, "list")) matching = 0;
    if (strncmp(what, "moves", 5) == 0) moves();
    else if (strcmp(what, "counts") == 0) counts();
    else if (strcmp(what, "unexpected") == 0) unexpected();
    else if (strcmp(what, "flow") == 0) flow();
    else if (strcmp(what, "limits") == 0) limits();
    else if (strcmp(what, "numbers") == 0) numbers();
    else if (strcmp(what, "last") == 0) last();
    else if (strcmp(what, "threads") == 0) threads();
    else if (strcmp(what, "aborted") == 0) aborted();
    else if (strcmp(what, "killed") == 0) killed();
    else if (strcmp(what, "stopped") == 0) stopped();
    else CHECK(!"a test of this name");
    if (strcmp(what, "killed") != 0 && strcmp(what, "stopped") != 0) unite(which);
    puts("ok");
    return 0;
}
