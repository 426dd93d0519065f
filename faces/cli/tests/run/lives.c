/* A program of OpenPMIx's client library that is not as regular as others. */
#include <pmix.h>
#include <pmix_tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me;
static uint32_t size = 3;

#define EXPECT(what)                                                          \
    do {                                                                      \
        if (!(what)) {                                                        \
            fprintf(stderr, "rank %u, line %d: %s\n", me.rank, __LINE__, #what); \
            _exit(1);                                                         \
        }                                                                     \
    } while (0)
#define GIVES(code, what)                                                     \
    do {                                                                      \
        pmix_status_t gave = (what);                                          \
        if (gave != (code)) {                                                 \
            fprintf(stderr, "rank %u, line %d: %s: %s\n", me.rank, __LINE__, #what, \
                    PMIx_Error_string(gave));                                 \
            _exit(1);                                                         \
        }                                                                     \
    } while (0)
#define OK(what) GIVES(PMIX_SUCCESS, what)

static pmix_proc_t proc_of(uint32_t rank) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    return proc;
}

static void put(const char *key, uint32_t number) {
    pmix_value_t value = {.type = PMIX_UINT32, .data.uint32 = number};
    OK(PMIx_Put(PMIX_GLOBAL, key, &value));
    OK(PMIx_Commit());
}

static void fence(int collect) {
    pmix_info_t info;
    bool yes = collect;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    OK(PMIx_Fence(NULL, 0, &info, 1));
}

/* Finalizes and begins again, some ranks later than others. */
static void cycles(void) {
    for (uint32_t cycle = 0; cycle < 3; cycle++) {
        char key[16];
        snprintf(key, sizeof key, "cycle%u", cycle);
        if (cycle > 0) {
            if (me.rank == 0) usleep(300000);
            OK(PMIx_Init(&me, NULL, 0));
        }
        put(key, 10 * cycle + me.rank);
        fence(1);
        for (uint32_t rank = 0; rank < size; rank++) {
            pmix_proc_t proc = proc_of(rank);
            pmix_value_t *value;
            OK(PMIx_Get(&proc, key, NULL, 0, &value));
            EXPECT(value->data.uint32 == 10 * cycle + rank);
            PMIX_VALUE_RELEASE(value);
        }
        fence(0);
        if (cycle < 2) OK(PMIx_Finalize(NULL, 0));
    }
}

/* A key that is put when it is asked for already. */
static void late(void) {
    pmix_value_t *value;
    pmix_info_t how, seconds;
    pmix_proc_t first = proc_of(0), any = proc_of(PMIX_RANK_UNDEF);
    uint32_t one = 1;
    put("early", 1);
    fence(0);
    if (me.rank == 0) {
        usleep(500000);
        put("late", 5);
        put("whose", 6);
    } else if (me.rank == 2) {
        /* Of whichever process. */
        PMIX_INFO_LOAD(&how, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&any, "whose", &how, 1, &value));
        OK(PMIx_Get(&any, "whose", NULL, 0, &value));
        EXPECT(value->data.uint32 == 6);
        PMIX_VALUE_RELEASE(value);
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&any, "no rank's", NULL, 0, &value));
        PMIX_INFO_LOAD(&seconds, PMIX_TIMEOUT, &one, PMIX_INT);
        GIVES(PMIX_ERR_TIMEOUT, PMIx_Get(&any, "no rank's", &seconds, 1, &value));
    } else {
        PMIX_INFO_LOAD(&how, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&first, "late", &how, 1, &value));
        OK(PMIx_Get(&first, "late", NULL, 0, &value));
        EXPECT(value->data.uint32 == 5);
        PMIX_VALUE_RELEASE(value);
        GIVES(PMIX_ERR_NOT_FOUND, PMIx_Get(&first, "never", NULL, 0, &value));
    }
    fence(0);
}

/* All that asks for what is not here, and would wait for an answer. */
static void refused(void) {
    pmix_info_t info, *results = NULL;
    size_t count = 0;
    pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
    pmix_byte_object_t credential = {"x", 1};
    pmix_app_t app;
    pmix_nspace_t name;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = "true";
    app.maxprocs = 1;
    PMIX_INFO_LOAD(&info, PMIX_ALLOC_ID, "more", PMIX_STRING);
    EXPECT(PMIx_Spawn(NULL, 0, &app, 1, name) != PMIX_SUCCESS);
    EXPECT(PMIx_Connect(&all, 1, NULL, 0) != PMIX_SUCCESS);
    EXPECT(PMIx_Disconnect(&all, 1, NULL, 0) != PMIX_SUCCESS);
    EXPECT(PMIx_Allocation_request(PMIX_ALLOC_NEW, &info, 1, &results, &count) != PMIX_SUCCESS);
    EXPECT(PMIx_Process_monitor(&info, PMIX_MONITOR_HEARTBEAT_ALERT, NULL, 0, &results, &count) !=
           PMIX_SUCCESS);
    EXPECT(PMIx_Get_credential(NULL, 0, &credential) != PMIX_SUCCESS);
    EXPECT(PMIx_Validate_credential(&credential, NULL, 0, &results, &count) != PMIX_SUCCESS);
    EXPECT(PMIx_Group_construct("group", &all, 1, NULL, 0, &results, &count) != PMIX_SUCCESS);
    EXPECT(PMIx_Group_destruct("group", NULL, 0) != PMIX_SUCCESS);
    EXPECT(PMIx_IOF_pull(&all, 1, NULL, 0, PMIX_FWD_STDOUT_CHANNEL, NULL, NULL, NULL) != PMIX_SUCCESS);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    OK(PMIx_Init(&me, NULL, 0));
    fence(0);
    if (!strcmp(what, "leave")) {
        if (me.rank == 1) _exit(0);
        EXPECT(PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS);
        /* Unless this one goes on, it is ended now. */
        if (argc > 2) printf("rank %u is told\n", me.rank);
        else sleep(60);
    } else if (!strcmp(what, "cycles")) {
        cycles();
    } else if (!strcmp(what, "late")) {
        late();
    } else if (!strcmp(what, "refused")) {
        refused();
    } else if (!strcmp(what, "crowded")) {
        pmix_value_t *value;
        pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
        OK(PMIx_Get(&all, PMIX_NODE_OVERSUBSCRIBED, NULL, 0, &value));
        EXPECT(value->type == PMIX_BOOL);
        printf("rank %u is %s\n", me.rank, value->data.flag ? "crowded" : "alone");
    }
    OK(PMIx_Finalize(NULL, 0));
    printf("rank %u is well\n", me.rank);
    return 0;
}
