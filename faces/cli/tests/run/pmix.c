/* A program on the client library of OpenPMIx: the word on its command line says what it does.
 * Whatever is not as it should be ends it with code 99 and the line. */
#define _GNU_SOURCE
#include <pmix.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(what)                                                                              \
    do {                                                                                          \
        if (!(what)) {                                                                            \
            printf("rank %u: line %d: not so: %s\n", me.rank, __LINE__, #what);                   \
            fflush(stdout);                                                                       \
            exit(99);                                                                             \
        }                                                                                         \
    } while (0)
#define GIVES(status, call)                                                                       \
    do {                                                                                          \
        pmix_status_t got_ = (call);                                                              \
        if (got_ != (status)) {                                                                   \
            printf("rank %u: line %d: %s, not %s: %s\n", me.rank, __LINE__,                       \
                   PMIx_Error_string(got_), PMIx_Error_string(status), #call);                    \
            fflush(stdout);                                                                       \
            exit(99);                                                                             \
        }                                                                                         \
    } while (0)
#define OK(call) GIVES(PMIX_SUCCESS, call)

static pmix_proc_t me;
static uint32_t size;

static pmix_proc_t proc_of(uint32_t rank) {
    pmix_proc_t proc;
    PMIX_PROC_LOAD(&proc, me.nspace, rank);
    return proc;
}

static pmix_value_t *get(uint32_t rank, const char *key) {
    pmix_proc_t proc = proc_of(rank);
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        printf("rank %u: no %s of %u: %s\n", me.rank, key, rank, PMIx_Error_string(status));
        fflush(stdout);
        exit(99);
    }
    return value;
}

static uint32_t number(uint32_t rank, const char *key) {
    pmix_value_t *value = get(rank, key);
    pmix_status_t status;
    uint32_t found;
    PMIX_VALUE_GET_NUMBER(status, value, found, uint32_t);
    EXPECT(status == PMIX_SUCCESS);
    PMIX_VALUE_RELEASE(value);
    return found;
}

/* The library knows the number of its own node only, but the names of all. */
static int is_here(uint32_t rank) {
    pmix_value_t *own = get(me.rank, PMIX_HOSTNAME), *its = get(rank, PMIX_HOSTNAME);
    int same = !strcmp(own->data.string, its->data.string);
    PMIX_VALUE_RELEASE(own);
    PMIX_VALUE_RELEASE(its);
    return same;
}

static void put_number(pmix_scope_t scope, const char *key, uint32_t number) {
    pmix_value_t value = {.type = PMIX_UINT32, .data.uint32 = number};
    OK(PMIx_Put(scope, key, &value));
}

static void fence(void) { OK(PMIx_Fence(NULL, 0, NULL, 0)); }

/* What the handlers have seen, one after the other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static char heard[64][128];
static int seen, taken;

static void hear(const char *form, ...) {
    va_list list;
    va_start(list, form);
    pthread_mutex_lock(&lock);
    vsnprintf(heard[seen++ % 64], 128, form, list);
    pthread_cond_signal(&bell);
    pthread_mutex_unlock(&lock);
    va_end(list);
}

static const char *next(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (taken == seen) {
        int late = pthread_cond_timedwait(&bell, &lock, &until);
        if (late) hear("nothing within 20 s");
    }
    pthread_mutex_unlock(&lock);
    return heard[taken++ % 64];
}

static void said(const char *expected) {
    const char *what = next();
    if (strcmp(what, expected)) {
        printf("rank %u: heard `%s`, not `%s`\n", me.rank, what, expected);
        fflush(stdout);
        exit(99);
    }
}

static void describe(const char *who, pmix_status_t code, const pmix_proc_t *source,
                     pmix_info_t info[], size_t ninfo) {
    const char *word = "";
    int affected = -1;
    for (size_t n = 0; n < ninfo; n++) {
        if (PMIX_CHECK_KEY(&info[n], "word") && info[n].value.type == PMIX_STRING)
            word = info[n].value.data.string;
        if (PMIX_CHECK_KEY(&info[n], PMIX_EVENT_AFFECTED_PROC))
            affected = (int) info[n].value.data.proc->rank;
    }
    if (affected >= 0)
        hear("%s: %d of rank %u", who, code, affected);
    else if (!PMIX_CHECK_NSPACE(source->nspace, me.nspace))
        hear("%s: %d from outside `%s`", who, code, word);
    else
        hear("%s: %d from %u `%s`", who, code, source->rank, word);
}

#define HANDLER(name, reply)                                                                      \
    static void name(size_t id, pmix_status_t code, const pmix_proc_t *source,                    \
                     pmix_info_t info[], size_t ninfo, pmix_info_t *results, size_t nresults,     \
                     pmix_event_notification_cbfunc_fn_t done, void *data) {                      \
        (void) id, (void) results, (void) nresults;                                               \
        describe(#name, code, source, info, ninfo);                                               \
        done(reply, NULL, 0, NULL, NULL, data);                                                   \
    }
HANDLER(handler, PMIX_EVENT_NO_ACTION_TAKEN)
HANDLER(other, PMIX_EVENT_NO_ACTION_TAKEN)
HANDLER(by_default, PMIX_EVENT_NO_ACTION_TAKEN)

static size_t on(pmix_status_t code, pmix_notification_fn_t what) {
    int id = PMIx_Register_event_handler(&code, 1, NULL, 0, what, NULL, NULL);
    EXPECT(id >= 0);
    return (size_t) id;
}

static void tell(pmix_status_t code, pmix_data_range_t range, const char *word, pmix_info_t *more) {
    pmix_info_t info[2];
    PMIX_INFO_LOAD(&info[0], "word", word, PMIX_STRING);
    if (more) info[1] = *more;
    OK(PMIx_Notify_event(code, &me, range, info, more ? 2 : 1, NULL, NULL));
    PMIX_VALUE_DESTRUCT(&info[0].value);
}

static int answered;
static pmix_status_t answer;

static void take_answer(pmix_status_t status, void *data) {
    (void) data;
    pthread_mutex_lock(&lock);
    answer = status;
    answered = 1;
    pthread_cond_signal(&bell);
    pthread_mutex_unlock(&lock);
}

/* Tells all of an event, and waits for what the daemon says of that. */
static pmix_status_t notify(pmix_status_t code, pmix_info_t *info, size_t count) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    answered = 0;
    OK(PMIx_Notify_event(code, &me, PMIX_RANGE_SESSION, info, count, take_answer, NULL));
    pthread_mutex_lock(&lock);
    while (!answered && !pthread_cond_timedwait(&bell, &lock, &until)) {}
    pthread_mutex_unlock(&lock);
    EXPECT(answered);
    return answer;
}

static void start(void) {
    OK(PMIx_Init(&me, NULL, 0));
    size = number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
}

static void job_data(void) {
    EXPECT(number(PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE) == size);
    EXPECT(number(PMIX_RANK_WILDCARD, PMIX_MAX_PROCS) == size);
    EXPECT(number(PMIX_RANK_WILDCARD, PMIX_JOB_NUM_APPS) == 1);
    EXPECT(number(me.rank, PMIX_APPNUM) == 0);
    EXPECT(number(me.rank, PMIX_GLOBAL_RANK) == me.rank);
    EXPECT(number(me.rank, PMIX_APP_RANK) == me.rank);
    EXPECT(number(me.rank, PMIX_NODE_RANK) == number(me.rank, PMIX_LOCAL_RANK));
    pmix_value_t *peers = get(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS);
    pmix_value_t *host = get(me.rank, PMIX_HOSTNAME);
    EXPECT(peers->type == PMIX_STRING && host->type == PMIX_STRING);
    printf("rank %u of %u: local %u of %u (%s), node %u of %u, %s\n", me.rank, size,
           number(me.rank, PMIX_LOCAL_RANK), number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE),
           peers->data.string, number(me.rank, PMIX_NODEID),
           number(PMIX_RANK_WILDCARD, PMIX_NUM_NODES), host->data.string);
    PMIX_VALUE_RELEASE(peers);
    PMIX_VALUE_RELEASE(host);
}

/* Cards: without a fence, with one, and what is not there. */
static void cards(void) {
    uint32_t peer = (me.rank + 1) % size;
    if (me.rank == 0) usleep(200000);
    pmix_value_t small = {.type = PMIX_UINT16, .data.uint16 = (uint16_t) (me.rank + 7)};
    OK(PMIx_Put(PMIX_GLOBAL, "direct", &small));
    OK(PMIx_Commit());
    pmix_value_t *value = get(peer, "direct");
    EXPECT(value->type == PMIX_UINT16 && value->data.uint16 == peer + 7);
    PMIX_VALUE_RELEASE(value);

    char bytes[5000];
    memset(bytes, (int) me.rank, sizeof bytes);
    pmix_value_t blob = {.type = PMIX_BYTE_OBJECT, .data.bo = {bytes, sizeof bytes}};
    OK(PMIx_Put(PMIX_GLOBAL, "blob", &blob));
    char name[32];
    snprintf(name, sizeof name, "I am %u", me.rank);
    pmix_value_t text = {.type = PMIX_STRING, .data.string = name};
    OK(PMIx_Put(PMIX_GLOBAL, "name", &text));
    pmix_value_t half = {.type = PMIX_DOUBLE, .data.dval = 0.5};
    OK(PMIx_Put(PMIX_GLOBAL, "half", &half));
    pmix_value_t of = {.type = PMIX_PROC, .data.proc = &me};
    OK(PMIx_Put(PMIX_GLOBAL, "who", &of));
    put_number(PMIX_LOCAL, "near", me.rank);
    put_number(PMIX_REMOTE, "far", me.rank);
    put_number(PMIX_LOCAL, "place", 1);
    put_number(PMIX_REMOTE, "place", 2);
    OK(PMIx_Commit());
    pmix_info_t collect;
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
    OK(PMIx_Fence(NULL, 0, &collect, 1));
    for (uint32_t rank = 0; rank < size; rank++) {
        if (rank == me.rank) continue;
        value = get(rank, "blob");
        EXPECT(value->type == PMIX_BYTE_OBJECT && value->data.bo.size == sizeof bytes);
        EXPECT(value->data.bo.bytes[4999] == (char) rank);
        PMIX_VALUE_RELEASE(value);
        value = get(rank, "name");
        snprintf(name, sizeof name, "I am %u", rank);
        EXPECT(value->type == PMIX_STRING && !strcmp(value->data.string, name));
        PMIX_VALUE_RELEASE(value);
        value = get(rank, "half");
        EXPECT(value->type == PMIX_DOUBLE && value->data.dval == 0.5);
        PMIX_VALUE_RELEASE(value);
        value = get(rank, "who");
        EXPECT(value->type == PMIX_PROC && value->data.proc->rank == rank);
        PMIX_VALUE_RELEASE(value);
        int here = is_here(rank);
        EXPECT(number(rank, here ? "near" : "far") == rank);
        EXPECT(number(rank, "place") == (here ? 1 : 2));
        pmix_proc_t proc = proc_of(rank);
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, here ? "far" : "near", NULL, 0, &value));
    }
    /* A key of the job that is not there, and one that any process might have put. */
    pmix_proc_t proc = proc_of(peer);
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, PMIX_CREDENTIAL, NULL, 0, &value));
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, "pmix.petasos.address", NULL, 0, &value));
    if (me.rank == size - 1) put_number(PMIX_GLOBAL, "unique", 41);
    OK(PMIx_Commit());
    OK(PMIx_Fence(NULL, 0, &collect, 1));
    OK(PMIx_Get(NULL, "unique", NULL, 0, &value));
    EXPECT(value->data.uint32 == 41);
    PMIX_VALUE_RELEASE(value);

    pmix_info_t how;
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, "never", NULL, 0, &value));
    PMIX_INFO_LOAD(&how, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, "never", &how, 1, &value));
    PMIX_INFO_LOAD(&how, PMIX_OPTIONAL, NULL, PMIX_BOOL);
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&proc, "never", &how, 1, &value));
    int seconds = 1;
    PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &seconds, PMIX_INT);
    GIVES(PMIX_ERR_TIMEOUT, PMIx_Get(&proc, "never", &how, 1, &value));
    /* One that comes while it is waited for. */
    seconds = 20;
    PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &seconds, PMIX_INT);
    if (me.rank == 0) {
        usleep(200000);
        put_number(PMIX_GLOBAL, "late", 5);
        OK(PMIx_Commit());
    } else {
        proc = proc_of(0);
        OK(PMIx_Get(&proc, "late", &how, 1, &value));
        EXPECT(value->data.uint32 == 5);
        PMIX_VALUE_RELEASE(value);
    }
}

static void fences(void) {
    pmix_proc_t two[2] = {proc_of(1), proc_of(0)};
    if (me.rank < 2)
        for (int n = 0; n < 20; n++) OK(PMIx_Fence(two, 2, NULL, 0));
    else
        GIVES(PMIX_ERR_NO_PERMISSIONS, PMIx_Fence(two, 2, NULL, 0));
    /* One to which not all come ends in time, for those who do; the others are told so later. */
    if (me.rank == 0) {
        int seconds = 1;
        pmix_info_t how;
        PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &seconds, PMIX_INT);
        GIVES(PMIX_ERR_TIMEOUT, PMIx_Fence(two, 2, &how, 1));
    } else if (me.rank == 1) {
        sleep(2);
        GIVES(PMIX_ERR_TIMEOUT, PMIx_Fence(two, 2, NULL, 0));
    }
    pmix_proc_t nobody;
    PMIX_PROC_LOAD(&nobody, "no such job", 0);
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Fence(&nobody, 1, NULL, 0));
    fence();
}

static void names(void) {
    pmix_info_t info[4];
    uint32_t port = 4040;
    pmix_data_range_t range = PMIX_RANGE_NAMESPACE;
    pmix_persistence_t once = PMIX_PERSIST_FIRST_READ;
    if (me.rank == 0) {
        usleep(100000);
        PMIX_INFO_LOAD(&info[0], "service", "first floor", PMIX_STRING);
        PMIX_INFO_LOAD(&info[1], "port", &port, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[2], PMIX_RANGE, &range, PMIX_DATA_RANGE);
        OK(PMIx_Publish(info, 3));
        /* Both or none: `fresh` is not left behind. */
        PMIX_INFO_LOAD(&info[0], "fresh", "paint", PMIX_STRING);
        GIVES(PMIX_ERR_DUPLICATE_KEY, PMIx_Publish(info, 3));
        PMIX_INFO_LOAD(&info[0], "once", "only", PMIX_STRING);
        PMIX_INFO_LOAD(&info[1], PMIX_PERSISTENCE, &once, PMIX_PERSIST);
        OK(PMIx_Publish(info, 2));
    }
    pmix_pdata_t data[2];
    memset(data, 0, sizeof data);
    strcpy(data[0].key, "port");
    strcpy(data[1].key, "service");
    int all = 0, seconds = 20;
    PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &all, PMIX_INT);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    OK(PMIx_Lookup(data, 2, info, 2));
    EXPECT(data[0].value.type == PMIX_UINT32 && data[0].value.data.uint32 == port);
    EXPECT(data[0].proc.rank == 0 && PMIX_CHECK_NSPACE(data[0].proc.nspace, me.nspace));
    EXPECT(!strcmp(data[1].value.data.string, "first floor"));
    fence();
    memset(data, 0, sizeof data);
    strcpy(data[0].key, "fresh");
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data, 1, NULL, 0));
    strcpy(data[0].key, "once");
    if (me.rank == 1) {
        OK(PMIx_Lookup(data, 1, NULL, 0));
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data, 1, NULL, 0));
    }
    seconds = 1;
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    strcpy(data[0].key, "nothing");
    GIVES(PMIX_ERR_TIMEOUT, PMIx_Lookup(data, 1, info, 2));
    /* One of two is enough. */
    int one = 1;
    PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &one, PMIX_INT);
    memset(data, 0, sizeof data);
    strcpy(data[0].key, "nothing");
    strcpy(data[1].key, "service");
    pmix_status_t some = PMIx_Lookup(data, 2, info, 2);
    EXPECT(some == PMIX_SUCCESS || some == PMIX_ERR_PARTIAL_SUCCESS);
    EXPECT(data[0].value.type == PMIX_UNDEF && !strcmp(data[1].value.data.string, "first floor"));
    fence();
    char *port_only[] = {"port", NULL};
    if (me.rank == 0) OK(PMIx_Unpublish(port_only, NULL, 0));
    fence();
    strcpy(data[0].key, "port");
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data, 1, NULL, 0));
    fence();
    /* All of its own. */
    if (me.rank == 0) OK(PMIx_Unpublish(NULL, NULL, 0));
    fence();
    strcpy(data[0].key, "service");
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data, 1, NULL, 0));
}

static void queries(void) {
    char *keys[] = {PMIX_QUERY_NAMESPACES, PMIX_QUERY_PROC_TABLE, "petasos.events.cached", NULL};
    pmix_query_t query = {.keys = keys};
    pmix_info_t *found = NULL;
    size_t count = 0;
    OK(PMIx_Query_info(&query, 1, &found, &count));
    EXPECT(count == 3);
    for (size_t n = 0; n < count; n++) {
        pmix_value_t *value = &found[n].value;
        if (PMIX_CHECK_KEY(&found[n], PMIX_QUERY_NAMESPACES)) {
            EXPECT(!strcmp(value->data.string, me.nspace));
        } else if (PMIX_CHECK_KEY(&found[n], PMIX_QUERY_PROC_TABLE)) {
            EXPECT(value->type == PMIX_DATA_ARRAY && value->data.darray->type == PMIX_PROC_INFO);
            EXPECT(value->data.darray->size == size);
            pmix_proc_info_t *table = value->data.darray->array;
            for (uint32_t rank = 0; rank < size; rank++)
                if (table[rank].proc.rank == me.rank) {
                    EXPECT(table[rank].pid == getpid());
                    EXPECT(table[rank].state == PMIX_PROC_STATE_CONNECTED);
                    EXPECT(strstr(table[rank].executable_name, "pmix"));
                }
        }
    }
    PMIX_INFO_FREE(found, count);
    char *unknown[] = {"weather", NULL};
    query.keys = unknown;
    GIVES(PMIX_ERR_NOT_SUPPORTED, PMIx_Query_info(&query, 1, &found, &count));
    char *local[] = {PMIX_QUERY_LOCAL_PROC_TABLE, NULL};
    query.keys = local;
    OK(PMIx_Query_info(&query, 1, &found, &count));
    EXPECT(found->value.data.darray->size == number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE));
    /* What the nodes have; all emulated ones have the same. */
    char *inventory[] = {PMIX_AVAIL_PHYS_MEMORY, "petasos.inventory.0", NULL};
    query.keys = inventory;
    OK(PMIx_Query_info(&query, 1, &found, &count));
    EXPECT(count == 2);
    uint64_t here = 0, there = 0;
    for (size_t n = 0; n < count; n++) {
        pmix_value_t *value = &found[n].value;
        if (PMIX_CHECK_KEY(&found[n], PMIX_AVAIL_PHYS_MEMORY)) {
            EXPECT(value->type == PMIX_UINT64);
            here = value->data.uint64;
            continue;
        }
        EXPECT(value->type == PMIX_DATA_ARRAY && value->data.darray->type == PMIX_INFO);
        pmix_info_t *of = value->data.darray->array;
        for (size_t at = 0; at < value->data.darray->size; at++)
            if (PMIX_CHECK_KEY(&of[at], "memory")) there = of[at].value.data.uint64;
    }
    EXPECT(here > 0 && here == there);
    PMIX_INFO_FREE(found, count);
}

/* What is not here says so. */
static void not_here(void) {
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, "a line", PMIX_STRING);
    pmix_status_t status = PMIx_Log(&info, 1, NULL, 0);
    EXPECT(status == PMIX_SUCCESS || status == PMIX_ERR_NOT_SUPPORTED);
    pmix_info_t *results = NULL;
    size_t count = 0;
    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_RESTART, "a checkpoint", PMIX_STRING);
    GIVES(PMIX_ERR_NOT_SUPPORTED, PMIx_Job_control(NULL, 0, &info, 1, &results, &count));
    PMIX_INFO_LOAD(&info, PMIX_REGISTER_CLEANUP, "a file", PMIX_STRING);
    GIVES(PMIX_ERR_NOT_SUPPORTED, PMIx_Job_control(&me, 1, &info, 1, &results, &count));
    PMIX_INFO_LOAD(&info, PMIX_ALLOC_ID, "more", PMIX_STRING);
    GIVES(PMIX_ERR_NOT_SUPPORTED,
          PMIx_Allocation_request(PMIX_ALLOC_NEW, &info, 1, &results, &count));
    pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
    GIVES(PMIX_ERR_NOT_SUPPORTED, PMIx_Connect(&all, 1, NULL, 0));
    pmix_app_t app;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = "true";
    app.maxprocs = 1;
    pmix_nspace_t name;
    GIVES(PMIX_ERR_NOT_SUPPORTED, PMIx_Spawn(NULL, 0, &app, 1, name));
}

static void events(void) {
    /* One of before anybody listened. */
    if (me.rank == 0) tell(-3200, PMIX_RANGE_NAMESPACE, "early", NULL);
    fence();
    int id = PMIx_Register_event_handler(NULL, 0, NULL, 0, by_default, NULL, NULL);
    EXPECT(id >= 0);
    said("by_default: -3200 from 0 `early`");
    /* For a late handler with this code; the one by default has seen it. */
    if (me.rank > 0) {
        on(-3200, handler);
        said("handler: -3200 from 0 `early`");
    }
    fence();
    size_t first = on(-3100, handler);
    fence();
    if (me.rank == 1) tell(-3100, PMIX_RANGE_SESSION, "to all", NULL);
    said("handler: -3100 from 1 `to all`");
    said("by_default: -3100 from 1 `to all`");
    fence();
    /* Not for default handlers. */
    pmix_info_t more;
    PMIX_INFO_LOAD(&more, PMIX_EVENT_NON_DEFAULT, NULL, PMIX_BOOL);
    if (me.rank == 0) tell(-3100, PMIX_RANGE_NAMESPACE, "special", &more);
    said("handler: -3100 from 0 `special`");
    fence();
    /* For two of them. */
    pmix_proc_t *to;
    pmix_data_array_t *array;
    PMIX_DATA_ARRAY_CREATE(array, 2, PMIX_PROC);
    to = array->array;
    to[0] = proc_of(1);
    to[1] = proc_of(2);
    PMIX_INFO_CONSTRUCT(&more);
    strcpy(more.key, PMIX_EVENT_CUSTOM_RANGE);
    more.value.type = PMIX_DATA_ARRAY;
    more.value.data.darray = array;
    if (me.rank == 0) tell(-3100, PMIX_RANGE_CUSTOM, "you two", &more);
    if (me.rank == 1 || me.rank == 2) {
        said("handler: -3100 from 0 `you two`");
        said("by_default: -3100 from 0 `you two`");
    }
    fence();
    /* For this node. */
    if (me.rank == 0) tell(-3100, PMIX_RANGE_LOCAL, "neighbours", NULL);
    if (is_here(0)) {
        said("handler: -3100 from 0 `neighbours`");
        said("by_default: -3100 from 0 `neighbours`");
    }
    fence();
    /* The handler is gone: the one by default still hears. */
    OK(PMIx_Deregister_event_handler(first, NULL, NULL));
    pmix_status_t codes[] = {-3101, -3102};
    id = PMIx_Register_event_handler(codes, 2, NULL, 0, other, NULL, NULL);
    EXPECT(id >= 0);
    fence();
    if (me.rank == 2) tell(-3100, PMIX_RANGE_NAMESPACE, "again", NULL);
    said("by_default: -3100 from 2 `again`");
    fence();
    if (me.rank == 2) tell(-3102, PMIX_RANGE_NAMESPACE, "many", NULL);
    said("other: -3102 from 2 `many`");
    said("by_default: -3102 from 2 `many`");
    /* This one does not leave its process. */
    tell(-3102, PMIX_RANGE_PROC_LOCAL, "mine", NULL);
    char own[64];
    snprintf(own, sizeof own, "other: -3102 from %u `mine`", me.rank);
    said(own);
    snprintf(own, sizeof own, "by_default: -3102 from %u `mine`", me.rank);
    said(own);
    fence();
    usleep(100000);
    EXPECT(taken == seen);
}

static void death(void) {
    on(PMIX_ERR_PROC_ABORTED, handler);
    fence();
    if (me.rank == 1) _exit(7);
    said("handler: -7 of rank 1");
    /* It is not waited for. */
    GIVES(PMIX_ERR_LOST_CONNECTION, PMIx_Fence(NULL, 0, NULL, 0));
    pmix_proc_t lost = proc_of(1);
    pmix_value_t *value;
    GIVES(PMIX_ERR_LOST_CONNECTION, PMIx_Get(&lost, "anything", NULL, 0, &value));
}

/* Has something done to one of the job, or of another one. */
static pmix_status_t control_of(const char *job, uint32_t rank, const char *what, void *value,
                                pmix_data_type_t type) {
    pmix_proc_t proc;
    PMIX_PROC_LOAD(&proc, job, rank);
    pmix_info_t info, *results = NULL;
    size_t count = 0;
    PMIX_INFO_LOAD(&info, what, value, type);
    return PMIx_Job_control(&proc, 1, &info, 1, &results, &count);
}

static pmix_status_t control(uint32_t rank, const char *what) {
    return control_of(me.nspace, rank, what, NULL, PMIX_BOOL);
}

static pmix_status_t send_signal(uint32_t rank, int number) {
    return control_of(me.nspace, rank, PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT);
}

/* Waits for a process to stop, or to go on. */
static void stops(uint32_t pid, int stopped) {
    char path[64], state;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    for (int n = 0; n < 2000; n++) {
        FILE *file = fopen(path, "r");
        EXPECT(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        if ((state == 'T') == stopped) return;
        usleep(10000);
    }
    EXPECT(!"it stops, and goes on");
}

static void await(uint32_t rank, const char *key) {
    pmix_proc_t proc = proc_of(rank);
    pmix_value_t *value;
    pmix_info_t how;
    int seconds = 20;
    PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &seconds, PMIX_INT);
    OK(PMIx_Get(&proc, key, &how, 1, &value));
}

static sigset_t waited_for(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    return set;
}

/* Rank 0 has things done to the others. */
static void control_others(void) {
    on(PMIX_ERR_PROC_ABORTED, handler);
    put_number(PMIX_GLOBAL, "pid", (uint32_t)getpid());
    OK(PMIx_Commit());
    fence();
    if (me.rank == 1) {
        sigset_t set = waited_for();
        int number;
        EXPECT(!sigwait(&set, &number) && number == SIGUSR1);
        put_number(PMIX_GLOBAL, "signal", 1);
        OK(PMIx_Commit());
        EXPECT(!sigwait(&set, &number) && number == SIGTERM);
        put_number(PMIX_GLOBAL, "end", 1);
        OK(PMIx_Commit());
        said("handler: -7 of rank 2");
    } else if (me.rank == 2) {
        sleep(60);
    } else {
        uint32_t pid = number(1, "pid");
        OK(send_signal(1, SIGUSR1));
        await(1, "signal");
        OK(control(1, PMIX_JOB_CTRL_PAUSE));
        stops(pid, 1);
        OK(control(1, PMIX_JOB_CTRL_RESUME));
        stops(pid, 0);
        GIVES(PMIX_ERR_BAD_PARAM, send_signal(1, 0));
        GIVES(PMIX_ERR_BAD_PARAM, send_signal(1, 4000));
        GIVES(PMIX_ERR_NOT_FOUND,
              control_of("another job", 1, PMIX_JOB_CTRL_KILL, NULL, PMIX_BOOL));
        OK(control(1, PMIX_JOB_CTRL_TERMINATE));
        await(1, "end");
        OK(control(2, PMIX_JOB_CTRL_KILL));
        said("handler: -7 of rank 2");
        GIVES(PMIX_ERR_LOST_CONNECTION, control(2, PMIX_JOB_CTRL_KILL));
    }
}

/* Beside a rank that speaks the native wire. */
static void mixed(void) {
    on(-3500, handler);
    put_number(PMIX_GLOBAL, "number", 17);
    OK(PMIx_Commit());
    fence();
    said("handler: -3500 from 0 `from the native one`");
    tell(-3501, PMIX_RANGE_NAMESPACE, "to the native one", NULL);
    pmix_value_t *value = get(0, "native");
    EXPECT(value->type == PMIX_STRING && !strcmp(value->data.string, "a text"));
    value = get(0, "list");
    EXPECT(value->type == PMIX_DATA_ARRAY && value->data.darray->size == 2);
    pmix_pdata_t data;
    PMIX_PDATA_CONSTRUCT(&data);
    strcpy(data.key, "published");
    OK(PMIx_Lookup(&data, 1, NULL, 0));
    EXPECT(data.value.type == PMIX_INT64 && data.value.data.int64 == -4);
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, "back", "a word", PMIX_STRING);
    OK(PMIx_Publish(&info, 1));
    fence();
}

/* Each rank keeps to one processor: where that is, and what the ranks share. */
static void bound(const char *program) {
    cpu_set_t set;
    EXPECT(!sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) == 1);
    char expected[32];
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set)) cpu++;
    snprintf(expected, sizeof expected, "hwloc:%d", cpu);
    pmix_value_t *value = get(me.rank, PMIX_CPUSET);
    EXPECT(value->type == PMIX_STRING && !strcmp(value->data.string, expected));
    pmix_value_t *all = get(PMIX_RANK_WILDCARD, PMIX_LOCAL_CPUSETS);
    EXPECT(all->type == PMIX_DATA_ARRAY && all->data.darray->type == PMIX_STRING);
    EXPECT(all->data.darray->size == size);
    EXPECT(!strcmp(((char **)all->data.darray->array)[me.rank], expected));
    value = get(me.rank, PMIX_LOCALITY_STRING);
    snprintf(expected, sizeof expected, ":HT%d", cpu);
    EXPECT(!strncmp(value->data.string, "hwloc:NM", 8) && strstr(value->data.string, expected));
    value = get(!me.rank, PMIX_LOCALITY_STRING);
    EXPECT(strstr(value->data.string, ":SK") && !strstr(value->data.string, expected));
    EXPECT(number(0, PMIX_PACKAGE_RANK) == 0 && number(1, PMIX_PACKAGE_RANK) <= 1);
    value = get(PMIX_RANK_WILDCARD, PMIX_AVAIL_PHYS_MEMORY);
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    EXPECT(value->type == PMIX_UINT64 && value->data.uint64 == memory);
    pmix_info_t info;
    int yes = 1;
    PMIX_INFO_LOAD(&info, PMIX_APP_INFO, &yes, PMIX_BOOL);
    pmix_proc_t job = proc_of(PMIX_RANK_UNDEF);
    OK(PMIx_Get(&job, PMIX_APP_ARGV, &info, 1, &value));
    EXPECT(!strncmp(value->data.string, program, strlen(program)));
}

/* What is found in part says so, and what cannot be is refused. */
static void strictly(void) {
    pmix_info_t *found = NULL, info[2];
    size_t count = 0;
    char *keys[] = {"petasos.jobs", "weather", NULL};
    pmix_query_t query = {.keys = keys};
    GIVES(PMIX_ERR_PARTIAL_SUCCESS, PMIx_Query_info(&query, 1, &found, &count));
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info[0], "one", "1", PMIX_STRING);
        PMIX_INFO_LOAD(&info[1], "two", "2", PMIX_STRING);
        OK(PMIx_Publish(info, 2));
    }
    fence();
    pmix_pdata_t data[3];
    memset(data, 0, sizeof data);
    strcpy(data[0].key, "one");
    strcpy(data[1].key, "two");
    OK(PMIx_Lookup(data, 2, NULL, 0));
    EXPECT(!strcmp(data[1].value.data.string, "2"));
    strcpy(data[2].key, "three");
    GIVES(PMIX_ERR_PARTIAL_SUCCESS, PMIx_Lookup(data, 3, NULL, 0));
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data + 2, 1, NULL, 0));
    /* Published by the resource manager, by the process itself, by one of its job. */
    pmix_data_range_t range = PMIX_RANGE_RM;
    PMIX_INFO_LOAD(&info[0], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    GIVES(PMIX_ERR_NOT_FOUND, PMIx_Lookup(data, 1, info, 1));
    range = PMIX_RANGE_PROC_LOCAL;
    PMIX_INFO_LOAD(&info[0], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    GIVES(me.rank ? PMIX_ERR_NOT_FOUND : PMIX_SUCCESS, PMIx_Lookup(data, 1, info, 1));
    range = PMIX_RANGE_NAMESPACE;
    PMIX_INFO_LOAD(&info[0], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    OK(PMIx_Lookup(data, 1, info, 1));
    fence();
    /* Events: codes of users and of others are told apart, and none of these is heard by others. */
    int id = PMIx_Register_event_handler(NULL, 0, NULL, 0, by_default, NULL, NULL);
    EXPECT(id >= 0);
    fence();
    if (me.rank == 0) {
        GIVES(PMIX_ERR_BAD_PARAM, notify(0, NULL, 0));
        GIVES(PMIX_ERR_BAD_PARAM, notify(5, NULL, 0));
        PMIX_INFO_LOAD(&info[0], "pmix.no.such.thing", "x", PMIX_STRING);
        PMIX_INFO_REQUIRED(&info[0]);
        GIVES(PMIX_ERR_NOT_SUPPORTED, notify(-3400, info, 1));
        for (int code = PMIX_EXTERNAL_ERR_BASE - 1; code > PMIX_EXTERNAL_ERR_BASE - 12; code--)
            tell(code, PMIX_RANGE_SESSION, "own", NULL);
    } else {
        for (int code = PMIX_EXTERNAL_ERR_BASE - 1; code > PMIX_EXTERNAL_ERR_BASE - 12; code--) {
            char own[64];
            snprintf(own, sizeof own, "by_default: %d from 0 `own`", code);
            said(own);
        }
    }
    fence();
}

/* An attribute that must be met, and is not known: each call that takes attributes is refused for it, and only for it. */
static void insistent(void) {
    pmix_proc_t first = proc_of(0);
    pmix_value_t *value;
    pmix_info_t info[2], *results = NULL;
    size_t count = 0;
    char *key[] = {"shop", NULL}, *known[] = {"petasos.jobs", NULL};
    pmix_pdata_t data;
    pmix_query_t query = {.keys = known, .qualifiers = info, .nqual = 1};
    put_number(PMIX_GLOBAL, "number", 7);
    OK(PMIx_Commit());
    fence();
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info[0], "shop", "bakery", PMIX_STRING);
        OK(PMIx_Publish(info, 1));
    }
    fence();
    for (int required = 1; required >= 0; required--) {
        pmix_status_t expected = required ? PMIX_ERR_NOT_SUPPORTED : PMIX_SUCCESS;
        PMIX_INFO_LOAD(&info[0], "pmix.no.such.thing", "x", PMIX_STRING);
        if (required) PMIX_INFO_REQUIRED(&info[0]);
        GIVES(expected, PMIx_Fence(NULL, 0, info, 1));
        if (me.rank == 1) {
            GIVES(expected, PMIx_Get(&first, "number", info, 1, &value));
            PMIX_PDATA_CONSTRUCT(&data);
            strcpy(data.key, "shop");
            GIVES(expected, PMIx_Lookup(&data, 1, info, 1));
            GIVES(expected, notify(-3400, info, 1));
            GIVES(expected, PMIx_Query_info(&query, 1, &results, &count));
            pmix_status_t code = -3401 - required;
            int id = PMIx_Register_event_handler(&code, 1, info, 1, handler, NULL, NULL);
            /* Which reason the daemon gives the library does not hand on. */
            EXPECT(required ? id == PMIX_ERR_SERVER_FAILED_REQUEST : id >= 0);
            char *action = PMIX_JOB_CTRL_RESUME;
            PMIX_INFO_LOAD(&info[1], action, NULL, PMIX_BOOL);
            GIVES(expected, PMIx_Job_control(&me, 1, info, 2, &results, &count));
            PMIX_INFO_LOAD(&info[1], "stall", "market", PMIX_STRING);
            GIVES(expected, PMIx_Publish(info, 2));
        }
        fence();
        if (me.rank == 0) GIVES(expected, PMIx_Unpublish(key, info, 1));
        fence();
    }
}

static char large_bytes[4 << 20];

static pmix_status_t put_large(int from, int to) {
    for (int n = from; n < to; n++) {
        char key[32];
        snprintf(key, sizeof key, "large %d", n);
        memset(large_bytes, n, sizeof large_bytes);
        pmix_value_t value = {.type = PMIX_BYTE_OBJECT,
                              .data.bo = {large_bytes, sizeof large_bytes}};
        OK(PMIx_Put(PMIX_GLOBAL, key, &value));
    }
    return PMIx_Commit();
}

/* Up to the limits of what is said, and beyond them. */
static void large(void) {
    static char text[70000];
    pmix_info_t info;
    if (me.rank == 0) OK(put_large(0, 15));
    fence();
    if (me.rank == 1) {
        pmix_value_t *value = get(0, "large 14");
        EXPECT(value->type == PMIX_BYTE_OBJECT && value->data.bo.size == sizeof large_bytes);
        EXPECT(value->data.bo.bytes[sizeof large_bytes - 1] == 14);
        /* A little more than an event may have. */
        memset(text, 'x', sizeof text - 1);
        PMIX_INFO_LOAD(&info, "word", text, PMIX_STRING);
        GIVES(PMIX_ERR_BAD_PARAM, notify(-3400, &info, 1));
        text[60000] = 0;
        PMIX_INFO_LOAD(&info, "word", text, PMIX_STRING);
        OK(notify(-3400, &info, 1));
    } else {
        /* More than a card has, and more than a message. */
        /* The library does not tell. */
        put_large(15, 17);
        put_large(17, 22);
        char *longer = calloc(1, (4 << 20) + 2);
        memset(longer, 'x', (4 << 20) + 1);
        PMIX_INFO_LOAD(&info, "longer", longer, PMIX_STRING);
        GIVES(PMIX_ERR_BAD_PARAM, PMIx_Publish(&info, 1));
    }
    fence();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "control")) {
        /* Before the library has threads. */
        sigset_t set = waited_for();
        pthread_sigmask(SIG_BLOCK, &set, NULL);
    }
    start();
    if (!strcmp(what, "all")) {
        job_data();
        cards();
        fences();
        names();
        queries();
        not_here();
        events();
    } else if (!strcmp(what, "death")) {
        death();
    } else if (!strcmp(what, "abort")) {
        fence();
        if (me.rank == 1) PMIx_Abort(9, "out of cheese", NULL, 0);
        sleep(60);
    } else if (!strcmp(what, "listen")) {
        on(-3500, handler);
        fence();
        if (me.rank == 0) printf("ready\n"), fflush(stdout);
        said("handler: -3500 from outside `hello`");
        if (me.rank == 1) tell(-3501, PMIX_RANGE_GLOBAL, "from within", NULL);
        said("handler: -3500 from outside `good bye`");
        fence();
    } else if (!strcmp(what, "control")) {
        control_others();
    } else if (!strcmp(what, "bound")) {
        bound(argv[0]);
    } else if (!strcmp(what, "mixed")) {
        mixed();
    } else if (!strcmp(what, "strictly")) {
        strictly();
    } else if (!strcmp(what, "insistent")) {
        insistent();
    } else if (!strcmp(what, "large")) {
        large();
    }
    OK(PMIx_Finalize(NULL, 0));
    printf("rank %u is well\n", me.rank);
    return 0;
}
