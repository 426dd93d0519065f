/* One process, which sends to itself: what each function does, and what it refuses. */
#include "common.h"
#include <stdint.h>

static ptl_handle_ni_t ni;
static ptl_process_t self;

static void before_the_start(void)
{
    ptl_handle_any_t handle = 0;
    ptl_ni_limits_t limits;
    ptl_event_t event;
    ptl_ct_event_t count = {1, 0};
    ptl_process_t id = any_rank();
    ptl_me_t me = entry(NULL, 0, 0, 0);
    ptl_md_t md = {NULL, 0, 0, PTL_EQ_NONE, PTL_CT_NONE};
    ptl_le_t le = {NULL, 0, PTL_CT_NONE, PTL_UID_ANY, 0};
    ptl_size_t size = 1;
    unsigned which;
    int value;
    IS(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, &limits,
                 &handle), PTL_NO_INIT);
    IS(PtlNIFini(0), PTL_NO_INIT);
    IS(PtlNIStatus(0, PTL_SR_DROP_COUNT, &value), PTL_NO_INIT);
    IS(PtlNIHandle(0, &handle), PTL_NO_INIT);
    IS(PtlSetMap(0, 1, &id), PTL_NO_INIT);
    IS(PtlGetMap(0, 1, &id, &size), PTL_NO_INIT);
    IS(PtlPTAlloc(0, 0, PTL_EQ_NONE, PTL_PT_ANY, &handle), PTL_NO_INIT);
    IS(PtlPTFree(0, 0), PTL_NO_INIT);
    IS(PtlPTEnable(0, 0), PTL_NO_INIT);
    IS(PtlPTDisable(0, 0), PTL_NO_INIT);
    IS(PtlGetUid(0, &handle), PTL_NO_INIT);
    IS(PtlGetId(0, &id), PTL_NO_INIT);
    IS(PtlGetPhysId(0, &id), PTL_NO_INIT);
    IS(PtlMDBind(0, &md, &handle), PTL_NO_INIT);
    IS(PtlMDRelease(0), PTL_NO_INIT);
    IS(PtlLEAppend(0, 0, &le, PTL_PRIORITY_LIST, NULL, &handle), PTL_NO_INIT);
    IS(PtlMEAppend(0, 0, &me, PTL_PRIORITY_LIST, NULL, &handle), PTL_NO_INIT);
    IS(PtlLEUnlink(0), PTL_NO_INIT);
    IS(PtlMEUnlink(0), PTL_NO_INIT);
    IS(PtlLESearch(0, 0, &le, PTL_SEARCH_ONLY, NULL), PTL_NO_INIT);
    IS(PtlMESearch(0, 0, &me, PTL_SEARCH_ONLY, NULL), PTL_NO_INIT);
    IS(PtlEQAlloc(0, 1, &handle), PTL_NO_INIT);
    IS(PtlEQFree(0), PTL_NO_INIT);
    IS(PtlEQGet(0, &event), PTL_NO_INIT);
    IS(PtlEQWait(0, &event), PTL_NO_INIT);
    IS(PtlEQPoll(&handle, 1, 1, &event, &which), PTL_NO_INIT);
    IS(PtlCTAlloc(0, &handle), PTL_NO_INIT);
    IS(PtlCTFree(0), PTL_NO_INIT);
    IS(PtlCTGet(0, &count), PTL_NO_INIT);
    IS(PtlCTWait(0, 1, &count), PTL_NO_INIT);
    IS(PtlCTPoll(&handle, &size, 1, 1, &count, &which), PTL_NO_INIT);
    IS(PtlCTSet(0, count), PTL_NO_INIT);
    IS(PtlCTInc(0, count), PTL_NO_INIT);
    IS(PtlCTCancelTriggered(0), PTL_NO_INIT);
    IS(PtlPut(0, 0, 0, 0, id, 0, 0, 0, NULL, 0), PTL_NO_INIT);
    IS(PtlGet(0, 0, 0, id, 0, 0, 0, NULL), PTL_NO_INIT);
    IS(PtlAtomic(0, 0, 0, 0, id, 0, 0, 0, NULL, 0, PTL_SUM, PTL_INT8_T), PTL_NO_INIT);
    IS(PtlFetchAtomic(0, 0, 0, 0, 0, id, 0, 0, 0, NULL, 0, PTL_SUM, PTL_INT8_T), PTL_NO_INIT);
    IS(PtlSwap(0, 0, 0, 0, 0, id, 0, 0, 0, NULL, 0, NULL, PTL_SWAP, PTL_INT8_T), PTL_NO_INIT);
    IS(PtlTriggeredPut(0, 0, 0, 0, id, 0, 0, 0, NULL, 0, 0, 1), PTL_NO_INIT);
    IS(PtlTriggeredGet(0, 0, 0, id, 0, 0, 0, NULL, 0, 1), PTL_NO_INIT);
    IS(PtlTriggeredCTInc(0, count, 0, 1), PTL_NO_INIT);
    IS(PtlTriggeredCTSet(0, count, 0, 1), PTL_NO_INIT);
    IS(PtlStartBundle(0), PTL_NO_INIT);
    IS(PtlEndBundle(0), PTL_NO_INIT);
    IS(PtlAtomicSync(), PTL_NO_INIT);
    PtlAbort();
    PtlFini();
}

static void interfaces(void)
{
    const unsigned matching[] = {PTL_NI_MATCHING, PTL_NI_NO_MATCHING};
    const unsigned naming[] = {PTL_NI_LOGICAL, PTL_NI_PHYSICAL};
    ptl_handle_ni_t handles[4], again, found;
    ptl_ni_limits_t desired, actual;
    ptl_process_t id, map[2], read[2];
    ptl_size_t size;
    ptl_uid_t uid;
    int value;
    memset(&desired, 0, sizeof desired);
    desired.max_entries = 100;
    desired.max_mds = 10;
    desired.max_pt_index = 7;
    desired.max_msg_size = 5000;
    desired.features = PTL_COHERENT_ATOMICS;
    for (int at = 0; at < 4; at++) {
        unsigned options = matching[at & 1] | naming[at >> 1];
        OK(PtlNIInit(at & 1 ? 0 : PTL_IFACE_DEFAULT, options, PTL_PID_ANY, &desired, &actual,
                     &handles[at]));
        IS(actual.max_entries, 100);
        IS(actual.max_mds, 10);
        IS(actual.max_pt_index, 7);
        IS(actual.max_msg_size, 5000);
        CHECK(actual.max_eqs > 0 && actual.max_cts > 0 && actual.max_atomic_size >= 8);
        OK(PtlNIInit(PTL_IFACE_DEFAULT, options, PTL_PID_ANY, NULL, NULL, &again));
        CHECK(PtlHandleIsEqual(handles[at], again));
        OK(PtlNIFini(again));
        OK(PtlNIHandle(handles[at], &found));
        IS(found, handles[at]);
        OK(PtlGetUid(handles[at], &uid));
        IS(uid, geteuid());
        for (int sr = 0; sr < PTL_SR_LAST; sr++) {
            OK(PtlNIStatus(handles[at], (ptl_sr_index_t)sr, &value));
            IS(value, 0);
        }
        IS(PtlNIStatus(handles[at], (ptl_sr_index_t)77, &value), PTL_ARG_INVALID);
        IS(PtlNIStatus(handles[at], PTL_SR_DROP_COUNT, NULL), PTL_ARG_INVALID);
        OK(PtlGetPhysId(handles[at], &id));
        CHECK(id.phys.pid > 0 && id.phys.pid < PTL_PID_MAX);
        if (naming[at >> 1] == PTL_NI_LOGICAL) {
            IS(PtlGetId(handles[at], &id), PTL_FAIL);
            IS(PtlGetMap(handles[at], 2, read, &size), PTL_NO_SPACE);
            map[1] = id;
            map[0] = id;
            map[0].phys.pid += 1;
            IS(PtlSetMap(handles[at], 0, map), PTL_ARG_INVALID);
            IS(PtlSetMap(handles[at], 1, NULL), PTL_ARG_INVALID);
            IS(PtlSetMap(handles[at], 1, map), PTL_ARG_INVALID); /* without this process */
            OK(PtlSetMap(handles[at], 2, map));
            IS(PtlSetMap(handles[at], 2, map), PTL_IGNORED);
            OK(PtlGetId(handles[at], &id));
            IS(id.rank, 1);
            OK(PtlGetMap(handles[at], 1, read, &size));
            CHECK(size == 2 && read[0].phys.pid == map[0].phys.pid);
            OK(PtlGetMap(handles[at], 0, NULL, &size));
        } else {
            OK(PtlGetId(handles[at], &read[0]));
            IS(read[0].phys.pid, id.phys.pid);
            IS(PtlSetMap(handles[at], 1, &id), PTL_ARG_INVALID);
        }
        OK(PtlStartBundle(handles[at]));
        OK(PtlEndBundle(handles[at]));
    }
    CHECK(!PtlHandleIsEqual(handles[0], handles[1]));
    IS(PtlNIInit(7, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL, &again),
       PTL_ARG_INVALID);
    IS(PtlNIInit(0, PTL_NI_MATCHING, PTL_PID_ANY, NULL, NULL, &again), PTL_ARG_INVALID);
    IS(PtlNIInit(0, 15, PTL_PID_ANY, NULL, NULL, &again), PTL_ARG_INVALID);
    IS(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL, NULL),
       PTL_ARG_INVALID);
    IS(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_MAX, NULL, NULL, &again),
       PTL_ARG_INVALID);
    OK(PtlNIFini(handles[0]));
    IS(PtlNIFini(handles[0]), PTL_ARG_INVALID);
    /* Opened again, it has another handle; the old one stays stale. */
    OK(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL, &again));
    CHECK(again != handles[0]);
    IS(PtlGetUid(handles[0], &uid), PTL_ARG_INVALID);
    OK(PtlNIFini(again));
    for (int at = 1; at < 4; at++) OK(PtlNIFini(handles[at]));
}

static void open_one(void)
{
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL, &ni));
    OK(PtlGetPhysId(ni, &self));
    OK(PtlSetMap(ni, 1, &self));
    OK(PtlGetId(ni, &self));
    IS(self.rank, 0);
}

static void counters(void)
{
    ptl_handle_ct_t a, b, both[2];
    ptl_ct_event_t count, one = {1, 0}, failed = {0, 1}, mixed = {1, 1}, set = {40, 0};
    ptl_size_t tests[2] = {100, 41};
    unsigned which;
    OK(PtlCTAlloc(ni, &a));
    OK(PtlCTAlloc(ni, &b));
    OK(PtlCTGet(a, &count));
    CHECK(count.success == 0 && count.failure == 0);
    IS(PtlCTInc(a, mixed), PTL_ARG_INVALID);
    /* One sets the other. */
    OK(PtlTriggeredCTSet(b, set, a, 2));
    OK(PtlTriggeredCTInc(b, one, a, 3));
    OK(PtlCTInc(a, one));
    OK(PtlCTGet(b, &count));
    IS(count.success, 0);
    OK(PtlCTInc(a, one));
    OK(PtlCTInc(a, one));
    OK(PtlCTWait(b, 41, &count));
    IS(count.success, 41);
    both[0] = a;
    both[1] = b;
    OK(PtlCTPoll(both, tests, 2, 1000, &count, &which));
    IS(which, 1);
    tests[1] = 1000;
    IS(PtlCTPoll(both, tests, 2, 5, &count, &which), PTL_CT_NONE_REACHED);
    /* A failure ends a wait. */
    OK(PtlCTInc(b, failed));
    OK(PtlCTWait(b, 5000, &count));
    IS(count.failure, 1);
    OK(PtlTriggeredCTInc(b, one, a, 90));
    OK(PtlCTCancelTriggered(a));
    OK(PtlCTSet(a, set));
    OK(PtlCTGet(a, &count));
    IS(count.success, 40);
    IS(PtlCTPoll(both, tests, 0, 5, &count, &which), PTL_ARG_INVALID);
    IS(PtlCTPoll(NULL, tests, 2, 5, &count, &which), PTL_ARG_INVALID);
    IS(PtlCTPoll(both, NULL, 2, 5, &count, &which), PTL_ARG_INVALID);
    IS(PtlCTPoll(both, tests, 2, 5, NULL, &which), PTL_ARG_INVALID);
    IS(PtlCTPoll(both, tests, 2, 5, &count, NULL), PTL_ARG_INVALID);
    IS(PtlCTAlloc(ni, NULL), PTL_ARG_INVALID);
    IS(PtlCTGet(a, NULL), PTL_ARG_INVALID);
    IS(PtlCTWait(a, 0, NULL), PTL_ARG_INVALID);
    OK(PtlCTFree(b));
    IS(PtlCTFree(b), PTL_ARG_INVALID);
    IS(PtlCTGet(b, &count), PTL_ARG_INVALID);
    IS(PtlCTWait(b, 0, &count), PTL_ARG_INVALID);
    IS(PtlCTPoll(both, tests, 2, 5, &count, &which), PTL_ARG_INVALID);
    OK(PtlCTFree(a));
}

/* To oneself: put, acknowledgement, get, atomics, memory in pieces, all memory. */
static void operations(void)
{
    char target[64], source[64], pieces[2][8];
    ptl_handle_eq_t here, there;
    ptl_pt_index_t pt;
    ptl_handle_me_t handle, whole;
    ptl_me_t me = entry(target, sizeof target, 7, PTL_ME_OP_PUT | PTL_ME_OP_GET);
    ptl_event_t event;
    OK(PtlEQAlloc(ni, 64, &here));
    OK(PtlEQAlloc(ni, 64, &there));
    OK(PtlPTAlloc(ni, 0, there, 5, &pt));
    IS(pt, 5);
    IS(PtlPTAlloc(ni, 0, there, 5, &pt), PTL_PT_IN_USE);
    IS(PtlPTAlloc(ni, 0, there, 100000, &pt), PTL_ARG_INVALID);
    IS(PtlPTAlloc(ni, PTL_PT_FLOWCTRL, PTL_EQ_NONE, PTL_PT_ANY, &pt), PTL_PT_EQ_NEEDED);
    IS(PtlPTAlloc(ni, 1 << 9, there, PTL_PT_ANY, &pt), PTL_ARG_INVALID);
    pt = 5;
    memset(target, 0, sizeof target);
    for (int at = 0; at < 64; at++) source[at] = (char)(at + 1);
    OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, &target, &handle));
    event = next(there, PTL_EVENT_LINK);
    CHECK(event.user_ptr == &target && event.pt_index == 5);

    ptl_handle_md_t md = bind_md(ni, source, sizeof source, 0, here, PTL_CT_NONE);
    OK(PtlPut(md, 1, 10, PTL_ACK_REQ, self, pt, 7, 3, &source, 0x1122334455667788ull));
    event = next(there, PTL_EVENT_PUT);
    CHECK(event.start == target + 3 && event.user_ptr == &target && event.mlength == 10);
    CHECK(event.rlength == 10 && event.remote_offset == 3 && event.match_bits == 7);
    CHECK(event.hdr_data == 0x1122334455667788ull && event.initiator.rank == 0);
    CHECK(event.uid == geteuid() && event.ptl_list == PTL_PRIORITY_LIST);
    event = next(here, PTL_EVENT_SEND);
    CHECK(event.user_ptr == &source && event.mlength == 10);
    event = next(here, PTL_EVENT_ACK);
    CHECK(event.user_ptr == &source && event.mlength == 10 && event.remote_offset == 3);
    CHECK(event.ptl_list == PTL_PRIORITY_LIST && memcmp(target + 3, source + 1, 10) == 0);

    /* Into memory in pieces. */
    ptl_iovec_t vector[2] = {{pieces[0], 8}, {pieces[1], 8}};
    ptl_handle_md_t pieced = bind_md(ni, vector, 2, PTL_IOVEC, here, PTL_CT_NONE);
    memset(pieces, 0, sizeof pieces);
    OK(PtlGet(pieced, 4, 10, self, pt, 7, 3, NULL));
    next(there, PTL_EVENT_GET);
    event = next(here, PTL_EVENT_REPLY);
    CHECK(event.mlength == 10 && memcmp(pieces[0] + 4, source + 1, 4) == 0);
    CHECK(memcmp(pieces[1], source + 5, 6) == 0);

    /* Cut, and the offset beyond the end. */
    OK(PtlPut(md, 0, 20, PTL_ACK_REQ, self, pt, 7, 60, NULL, 0));
    CHECK(next(there, PTL_EVENT_PUT).mlength == 4);
    next(here, PTL_EVENT_SEND);
    CHECK(next(here, PTL_EVENT_ACK).mlength == 4);

    /* Nothing matches; not allowed. */
    OK(PtlPut(md, 0, 20, PTL_ACK_REQ, self, pt, 8, 0, NULL, 0));
    next(here, PTL_EVENT_SEND);
    next_failed(here, PTL_EVENT_ACK, PTL_NI_DROPPED);
    int dropped;
    OK(PtlNIStatus(ni, PTL_SR_DROP_COUNT, &dropped));
    IS(dropped, 1);

    /* Atomics. */
    int64_t *number = (int64_t *)(void *)(target + 8), add = 5, operand = 12, old = 0, new = 99;
    *number = 7;
    ptl_handle_md_t all = bind_md(ni, NULL, PTL_SIZE_MAX, 0, here, PTL_CT_NONE);
    OK(PtlAtomic(all, (ptl_size_t)(uintptr_t)&add, 8, PTL_ACK_REQ, self, pt, 7, 8, NULL, 0, PTL_SUM,
                 PTL_INT64_T));
    event = next(there, PTL_EVENT_ATOMIC);
    CHECK(event.atomic_operation == PTL_SUM && event.atomic_type == PTL_INT64_T);
    next(here, PTL_EVENT_SEND);
    next(here, PTL_EVENT_ACK);
    IS(*number, 12);
    OK(PtlSwap(all, (uintptr_t)&old, all, (uintptr_t)&new, 8, self, pt, 7, 8, NULL, 0, &operand,
               PTL_CSWAP, PTL_INT64_T));
    next(there, PTL_EVENT_FETCH_ATOMIC);
    next(here, PTL_EVENT_SEND);
    next(here, PTL_EVENT_REPLY);
    CHECK(old == 12 && *number == 99);
    OK(PtlFetchAtomic(all, (uintptr_t)&old, all, (uintptr_t)&add, 8, self, pt, 7, 8, NULL, 0,
                      PTL_BXOR, PTL_UINT64_T));
    next(there, PTL_EVENT_FETCH_ATOMIC);
    next(here, PTL_EVENT_SEND);
    next(here, PTL_EVENT_REPLY);
    CHECK(old == 99 && *number == (99 ^ 5));
    float wave = 1.5f, *sea = (float *)(void *)(target + 16);
    *sea = 2;
    OK(PtlAtomic(all, (uintptr_t)&wave, 4, PTL_NO_ACK_REQ, self, pt, 7, 16, NULL, 0, PTL_PROD,
                 PTL_FLOAT));
    CHECK(next(there, PTL_EVENT_ATOMIC).atomic_type == PTL_FLOAT && *sea == 3.0f);
    next(here, PTL_EVENT_SEND);
    IS(PtlAtomic(all, (uintptr_t)&wave, 16, 0, self, pt, 7, 16, NULL, 0, PTL_SUM, PTL_LONG_DOUBLE),
       PTL_ARG_INVALID);
    IS(PtlAtomic(all, (uintptr_t)&wave, 4, 0, self, pt, 7, 16, NULL, 0, PTL_SWAP, PTL_FLOAT),
       PTL_ARG_INVALID);
    IS(PtlAtomic(all, (uintptr_t)&wave, 4, 0, self, pt, 7, 16, NULL, 0, PTL_BAND, PTL_FLOAT),
       PTL_ARG_INVALID);
    IS(PtlAtomic(all, (uintptr_t)&wave, 3, 0, self, pt, 7, 16, NULL, 0, PTL_SUM, PTL_FLOAT),
       PTL_ARG_INVALID);
    IS(PtlFetchAtomic(all, (uintptr_t)&old, all, (uintptr_t)&add, 8, self, pt, 7, 8, NULL, 0,
                      PTL_CSWAP, PTL_UINT64_T), PTL_ARG_INVALID);
    IS(PtlSwap(all, (uintptr_t)&old, all, (uintptr_t)&new, 8, self, pt, 7, 8, NULL, 0, NULL,
               PTL_CSWAP, PTL_INT64_T), PTL_ARG_INVALID);
    IS(PtlSwap(all, (uintptr_t)&old, all, (uintptr_t)&new, 8, self, pt, 7, 8, NULL, 0, &operand,
               PTL_SUM, PTL_INT64_T), PTL_ARG_INVALID);

    /* All memory as an entry: offsets are addresses, and a bad one is an error. */
    me = entry(NULL, PTL_SIZE_MAX, 9, PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE);
    OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, NULL, &whole));
    memset(pieces, 0, sizeof pieces);
    OK(PtlPut(md, 0, 16, PTL_ACK_REQ, self, pt, 9, (uintptr_t)pieces, NULL, 0));
    CHECK(next(there, PTL_EVENT_PUT).start == (void *)pieces);
    next(here, PTL_EVENT_SEND);
    next(here, PTL_EVENT_ACK);
    CHECK(memcmp(pieces, source, 16) == 0);
    OK(PtlPut(md, 0, 16, PTL_ACK_REQ, self, pt, 9, 16, NULL, 0));
    next_failed(there, PTL_EVENT_PUT, PTL_NI_SEGV);
    next(here, PTL_EVENT_SEND);
    next_failed(here, PTL_EVENT_ACK, PTL_NI_SEGV);
    OK(PtlGet(md, 32, 16, self, pt, 9, 4096, NULL));
    next_failed(there, PTL_EVENT_GET, PTL_NI_SEGV);
    next_failed(here, PTL_EVENT_REPLY, PTL_NI_SEGV);
    OK(PtlAtomic(all, (uintptr_t)&add, 8, PTL_ACK_REQ, self, pt, 9, (uintptr_t)number, NULL, 0,
                 PTL_SUM, PTL_INT64_T));
    next(there, PTL_EVENT_ATOMIC);
    next(here, PTL_EVENT_SEND);
    next(here, PTL_EVENT_ACK);
    IS(*number, (99 ^ 5) + 5);
    OK(PtlMEUnlink(whole));

    /* What is refused. */
    ptl_md_t bad = {NULL, 100, 0, here, PTL_CT_NONE};
    ptl_handle_md_t no;
    IS(PtlMDBind(ni, &bad, &no), PTL_ARG_INVALID);
    bad.start = source;
    bad.options = 1 << 12;
    IS(PtlMDBind(ni, &bad, &no), PTL_ARG_INVALID);
    bad.options = 0;
    bad.eq_handle = here ^ 1u << 20;
    IS(PtlMDBind(ni, &bad, &no), PTL_ARG_INVALID);
    bad.eq_handle = md;
    IS(PtlMDBind(ni, &bad, &no), PTL_ARG_INVALID);
    IS(PtlMDBind(ni, NULL, &no), PTL_ARG_INVALID);
    bad.eq_handle = here;
    IS(PtlMDBind(ni, &bad, NULL), PTL_ARG_INVALID);
    ptl_process_t nobody = self;
    nobody.rank = 1;
    IS(PtlPut(md, 0, 10, PTL_NO_ACK_REQ, nobody, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(md, 60, 10, PTL_NO_ACK_REQ, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(md, UINT64_MAX - 3, 10, PTL_NO_ACK_REQ, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(md, 0, UINT64_MAX, PTL_NO_ACK_REQ, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(md, 0, 10, 9, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(md, 0, 10, PTL_CT_ACK_REQ, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlPut(handle, 0, 10, PTL_NO_ACK_REQ, self, pt, 7, 0, NULL, 0), PTL_ARG_INVALID);
    IS(PtlMEAppend(ni, pt, NULL, PTL_PRIORITY_LIST, NULL, &whole), PTL_ARG_INVALID);
    IS(PtlMEAppend(ni, pt, &me, 2, NULL, &whole), PTL_ARG_INVALID);
    IS(PtlMEAppend(ni, 9, &me, PTL_PRIORITY_LIST, NULL, &whole), PTL_ARG_INVALID);
    IS(PtlMESearch(ni, pt, &me, 2, NULL), PTL_ARG_INVALID);
    ptl_le_t le = {NULL, 0, PTL_CT_NONE, PTL_UID_ANY, 0};
    IS(PtlLEAppend(ni, pt, &le, PTL_PRIORITY_LIST, NULL, &whole), PTL_ARG_INVALID);
    IS(PtlLEUnlink(handle), PTL_ARG_INVALID);
    IS(PtlPTFree(ni, pt), PTL_PT_IN_USE);
    none(here);
    none(there);
    OK(PtlMEUnlink(handle));
    IS(PtlMEUnlink(handle), PTL_ARG_INVALID);
    OK(PtlMDRelease(md));
    IS(PtlMDRelease(md), PTL_ARG_INVALID);
    OK(PtlMDRelease(pieced));
    OK(PtlMDRelease(all));
    OK(PtlPTFree(ni, pt));
    IS(PtlPTFree(ni, pt), PTL_ARG_INVALID);
    OK(PtlEQFree(here));
    OK(PtlEQFree(there));
    IS(PtlEQFree(there), PTL_ARG_INVALID);
}

/* A queue that is too short says so, and still gives an event. */
static void full_queue(void)
{
    ptl_handle_eq_t eq;
    ptl_pt_index_t pt;
    ptl_handle_me_t handles[5];
    ptl_event_t event;
    ptl_me_t me = entry(NULL, 0, 0, PTL_ME_OP_PUT);
    unsigned which;
    OK(PtlEQAlloc(ni, 2, &eq));
    OK(PtlPTAlloc(ni, 0, eq, PTL_PT_ANY, &pt));
    for (int at = 0; at < 5; at++)
        OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, &handles[at], &handles[at]));
    IS(PtlEQGet(eq, &event), PTL_EQ_DROPPED);
    CHECK(event.type == PTL_EVENT_LINK && event.user_ptr == &handles[3]);
    CHECK(next(eq, PTL_EVENT_LINK).user_ptr == &handles[4]);
    IS(PtlEQGet(eq, &event), PTL_EQ_EMPTY);
    IS(PtlEQPoll(&eq, 1, 3, &event, &which), PTL_EQ_EMPTY);
    for (int at = 0; at < 5; at++) OK(PtlMEUnlink(handles[at]));
    OK(PtlPTFree(ni, pt));
    OK(PtlEQFree(eq));
}

/* Handles that never were, with arguments that make no sense: an error each, and no crash. */
static uint64_t state = 88172645463325252ull;
static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static void garbage(void)
{
    char memory[64];
    ptl_handle_any_t real[6], h[4];
    ptl_pt_index_t pt;
    ptl_event_t event;
    ptl_ct_event_t count;
    unsigned which;
    ptl_me_t me = entry(memory, sizeof memory, 1, PTL_ME_OP_PUT);
    OK(PtlEQAlloc(ni, 16, &real[0]));
    OK(PtlCTAlloc(ni, &real[1]));
    real[2] = bind_md(ni, memory, sizeof memory, 0, real[0], real[1]);
    OK(PtlPTAlloc(ni, 0, real[0], PTL_PT_ANY, &pt));
    OK(PtlMEAppend(ni, pt, &me, PTL_PRIORITY_LIST, NULL, &real[3]));
    real[4] = ni;
    real[5] = PTL_INVALID_HANDLE;
    for (int round = 0; round < 200000; round++) {
        for (int at = 0; at < 4; at++) {
            uint32_t bits = draw();
            h[at] = draw() % 3 ? real[bits % 6] ^ (1u << (draw() % 32)) : bits;
            /* What is real is used elsewhere. */
            for (int is = 0; is < 5; is++)
                if (h[at] == real[is]) h[at] = PTL_INVALID_HANDLE;
        }
        ptl_process_t id;
        id.phys.nid = draw() % 4;
        id.phys.pid = draw();
        ptl_size_t size = (ptl_size_t)draw() << (draw() % 32);
        ptl_ct_event_t value = {draw(), 0};
        int found;
        switch (draw() % 24) {
        case 0: found = PtlPut(h[0], size, draw() % 99, draw() % 5, id, draw(), 1, size, NULL, 0); break;
        case 1: found = PtlGet(h[0], size, draw() % 99, id, draw(), 1, size, NULL); break;
        case 2: found = PtlEQGet(h[0], &event); break;
        case 3: found = PtlEQWait(h[0], &event); break;
        case 4: found = PtlEQPoll(h, draw() % 5, 0, &event, &which); break;
        case 5: found = PtlCTGet(h[0], &count); break;
        case 6: found = PtlCTWait(h[0], 0, &count); break;
        case 7: found = PtlCTInc(h[0], value); break;
        case 8: found = PtlCTSet(h[0], value); break;
        case 9: found = PtlCTFree(h[0]); break;
        case 10: found = PtlEQFree(h[0]); break;
        case 11: found = PtlMDRelease(h[0]); break;
        case 12: found = PtlMEUnlink(h[0]); break;
        case 13: found = PtlLEUnlink(h[0]); break;
        case 14: found = PtlNIFini(h[0]); break;
        case 15: found = PtlPTAlloc(h[0], draw(), h[1], draw(), &pt); break;
        case 16: found = PtlMEAppend(h[0], draw(), &me, draw() & 255, NULL, &h[1]); break;
        case 17: found = PtlTriggeredCTInc(h[0], value, h[1], size); break;
        case 18: found = PtlNIHandle(h[0], &h[1]); break;
        case 19: found = PtlAtomic(h[0], size, 8, 0, id, draw(), 1, 0, NULL, 0, draw() & 255, draw() & 255); break;
        case 20: found = PtlTriggeredPut(h[0], 0, 8, 0, id, pt, 1, 0, NULL, 0, h[1], 3); break;
        case 21: found = PtlPut(real[2], size, size, draw() & 255, id, draw(), 1, size, NULL, 0); break;
        case 22: found = PtlPut(real[2], 0, 8, PTL_NO_ACK_REQ, self, draw() % 70000 + 300, 1, size, NULL, 0); break;
        default: found = PtlCTCancelTriggered(h[0]); break;
        }
        /* A real one by chance, or a put that is well formed. */
        if (found == PTL_OK) {
            CHECK(PtlEQGet(real[0], &event) != PTL_ARG_INVALID);
        }
    }
    OK(PtlMEUnlink(real[3]));
    OK(PtlPTFree(ni, pt));
    OK(PtlCTFree(real[1]));
    OK(PtlEQFree(real[0]));
}

int main(void)
{
    before_the_start();
    OK(PtlInit());
    OK(PtlInit());
    IS(PtlNIFini(0), PTL_ARG_INVALID);
    IS(PtlNIFini(PTL_INVALID_HANDLE), PTL_ARG_INVALID);
    interfaces();
    open_one();
    counters();
    operations();
    full_queue();
    garbage();
    PtlFini();
    CHECK(PtlNIFini(ni) == PTL_OK);
    PtlFini();
    IS(PtlNIFini(ni), PTL_NO_INIT);
    /* Once more from the beginning. */
    OK(PtlInit());
    open_one();
    counters();
    PtlFini();
    puts("ok");
    return 0;
}
