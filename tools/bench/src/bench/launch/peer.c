/* What `petasos bench launch` measures of OpenPMIx: the same steps as its native rank, through
 * libpmix, under any launcher. Rank 0 prints its figures as a line of JSON.
 *
 *   peer measure EVENTS     figures within a job; EVENTS is 1 if events are measured, else 0
 *   peer direct|full        each rank prints how long it took to learn its neighbours' addresses
 */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <pthread.h>

#define EVENT (-3201)
#define ALONE 20  /* events one at a time */
#define TRIPS 20  /* events there and back */

#define OK(call)                                                                                  \
    do {                                                                                          \
        pmix_status_t got_ = (call);                                                              \
        if (got_ != PMIX_SUCCESS) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, PMIx_Error_string(got_));                          \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static pmix_proc_t me;
static uint32_t size;

static double now_of(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static double now(void) { return now_of(CLOCK_MONOTONIC); }

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    if (!count) return 0;
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Bytes of memory that this process does not share with a file or another process. */
static double private_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib = 0, found;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Anonymous: %lf", &found) == 1) kib = found;
    if (file) fclose(file);
    return kib * 1024;
}

static pmix_proc_t proc_of(uint32_t rank) {
    pmix_proc_t proc;
    PMIX_PROC_LOAD(&proc, me.nspace, rank);
    return proc;
}

static pmix_value_t *get(uint32_t rank, const char *key) {
    pmix_proc_t proc = proc_of(rank);
    pmix_value_t *value = NULL;
    OK(PMIx_Get(&proc, key, NULL, 0, &value));
    return value;
}

static void put(const char *key, char *bytes, size_t len) {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes;
    value.data.bo.size = len;
    OK(PMIx_Put(PMIX_GLOBAL, key, &value));
}

static void fence(int collect) {
    pmix_info_t info;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    OK(PMIx_Fence(NULL, 0, collect ? &info : NULL, collect ? 1 : 0));
}

/* Ages of the events that came from others. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static double ages[ALONE + TRIPS];
static int heard, taken;

static void handler(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                    size_t ninfo, pmix_info_t results[], size_t nresults,
                    pmix_event_notification_cbfunc_fn_t done, void *data) {
    double came = now();
    (void)id, (void)status, (void)results, (void)nresults;
    if (source->rank != me.rank) {
        pthread_mutex_lock(&lock);
        for (size_t n = 0; n < ninfo; n++)
            if (PMIX_CHECK_KEY(&info[n], "bench.sent") && heard < ALONE + TRIPS)
                ages[heard] = came - (double)info[n].value.data.uint64;
        heard++;
        pthread_cond_signal(&bell);
        pthread_mutex_unlock(&lock);
    }
    if (done) done(PMIX_EVENT_NO_ACTION_TAKEN, NULL, 0, NULL, NULL, data);
}

static void tell(void) {
    pmix_info_t info;
    uint64_t sent = (uint64_t)now();
    PMIX_INFO_LOAD(&info, "bench.sent", &sent, PMIX_UINT64);
    OK(PMIx_Notify_event(EVENT, &me, PMIX_RANGE_LOCAL, &info, 1, NULL, NULL));
}

static void hear(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (taken == heard)
        if (pthread_cond_timedwait(&bell, &lock, &until)) {
            fprintf(stderr, "no event within 20 s\n");
            exit(1);
        }
    taken++;
    pthread_mutex_unlock(&lock);
}

/* Ranks 0 and 1: events one at a time from 0 to 1, then there and back. Returns the time of one hop. */
static double events(void) {
    pmix_status_t code = EVENT;
    pmix_proc_t both[2] = {proc_of(0), proc_of(1)};
    OK(PMIx_Register_event_handler(&code, 1, NULL, 0, handler, NULL, NULL));
    OK(PMIx_Fence(both, 2, NULL, 0));
    for (int n = 0; n < ALONE; n++) {
        if (me.rank == 0) {
            usleep(2000);
            tell();
        } else {
            hear();
        }
    }
    OK(PMIx_Fence(both, 2, NULL, 0));
    double start = now();
    for (int n = 0; n < TRIPS; n++) {
        if (me.rank == 0) tell();
        hear();
        if (me.rank == 1) tell();
    }
    double hop = (now() - start) / (2 * TRIPS);
    if (me.rank == 1) {
        double age = median(ages, ALONE);
        put("age", (char *)&age, sizeof age);
        OK(PMIx_Commit());
    }
    OK(PMIx_Fence(both, 2, NULL, 0));
    return hop;
}

static void init(void) {
    OK(PMIx_Init(&me, NULL, 0));
    pmix_proc_t job = proc_of(PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    OK(PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value));
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
}

static void measure(int with_events) {
    static double times[1024];
    char key[16], bytes[64];
    double before = private_bytes(), cpu = now_of(CLOCK_PROCESS_CPUTIME_ID), start = now();
    OK(PMIx_Init(&me, NULL, 0));
    double init_ns = now() - start;
    cpu = now_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    pmix_proc_t job = proc_of(PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    OK(PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value));
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    int many = size <= 16 ? 200 : 50;
    memset(bytes, me.rank, sizeof bytes);
    put("direct", bytes, sizeof bytes);
    OK(PMIx_Commit());
    fence(0);
    double private = private_bytes() - before;
    int first = 0;
    double first_get = 0, again = 0, job_get, bare, full, put_ns, commit_ns, age = 0, hop = 0;
    if (me.rank == 0 && size > 1) {
        for (uint32_t peer = 1; peer < size && first < 1024; peer++) {
            start = now();
            value = get(peer, "direct");
            times[first++] = now() - start;
            if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != sizeof bytes) exit(1);
            PMIX_VALUE_RELEASE(value);
        }
        first_get = median(times, first);
        for (int n = 0; n < many; n++) {
            start = now();
            value = get(1, "direct");
            times[n] = now() - start;
            PMIX_VALUE_RELEASE(value);
        }
        again = median(times, many);
    }
    for (int n = 0; n < many; n++) {
        start = now();
        value = get(me.rank, PMIX_HOSTNAME);
        times[n] = now() - start;
        PMIX_VALUE_RELEASE(value);
    }
    job_get = median(times, many);
    fence(0);
    for (int n = 0; n < many; n++) {
        start = now();
        fence(0);
        times[n] = now() - start;
    }
    bare = median(times, many);
    for (int n = 0; n < many; n++) {
        start = now();
        fence(1);
        times[n] = now() - start;
    }
    full = median(times, many);
    static double commits[1024];
    for (int n = 0; n < 50; n++) {
        snprintf(key, sizeof key, "key%d", n);
        start = now();
        put(key, bytes, sizeof bytes);
        times[n] = now() - start;
        start = now();
        OK(PMIx_Commit());
        commits[n] = now() - start;
    }
    put_ns = median(times, 50);
    commit_ns = median(commits, 50);
    fence(0);
    if (with_events && size > 1 && me.rank < 2) {
        hop = events();
        if (me.rank == 0) {
            value = get(1, "age");
            memcpy(&age, value->data.bo.bytes, sizeof age);
            PMIX_VALUE_RELEASE(value);
        }
    }
    fence(0);
    OK(PMIx_Finalize(NULL, 0));
    if (me.rank == 0)
        printf("{\"init\":%.0f,\"init_cpu\":%.0f,\"private\":%.0f,\"job_get\":%.0f,"
               "\"first_get\":%.0f,\"again_get\":%.0f,\"put\":%.0f,\"commit\":%.0f,\"fence\":%.0f,"
               "\"full_fence\":%.0f,\"event\":%.0f,\"hop\":%.0f}\n",
               init_ns, cpu, private, job_get, first_get, again, put_ns, commit_ns, bare, full, age,
               hop);
}

static void wire_up(int full) {
    char address[64];
    init();
    double start = now();
    int len = snprintf(address, sizeof address, "shm://somewhere-%u-%u", getpid(), me.rank);
    put("address", address, len);
    OK(PMIx_Commit());
    if (full) fence(1);
    uint32_t peers[2] = {(me.rank + 1) % size, (me.rank + size - 1) % size};
    for (int n = 0; n < 2; n++) {
        pmix_value_t *value = NULL;
        pmix_proc_t peer = proc_of(peers[n]);
        pmix_status_t status;
        /* mpirun does not wait for a card that is not published yet. */
        while ((status = PMIx_Get(&peer, "address", NULL, 0, &value)) == PMIX_ERR_NOT_FOUND &&
               now() - start < 20e9)
            usleep(100);
        OK(status);
        if (value->type != PMIX_BYTE_OBJECT || !value->data.bo.size) exit(1);
        PMIX_VALUE_RELEASE(value);
    }
    double end = now();
    printf("{\"wired\":%.0f,\"at\":%.0f}\n", end - start, end);
    fflush(stdout);
    /* No rank leaves while others may still ask for its card. */
    fence(0);
    OK(PMIx_Finalize(NULL, 0));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "measure";
    if (!strcmp(what, "measure"))
        measure(argc > 2 && !strcmp(argv[2], "1"));
    else
        wire_up(!strcmp(what, "full"));
    return 0;
}
