/* The processes of a job, whose ranks are from the launcher (portals4_job.h): each puts to the
 * next, and adds at the first. With "kill" rank 1 dies in the middle, with "stop" it is stopped for
 * a while. */
#include "common.h"
#include <portals4_job.h>
#include <stdint.h>

/* Waits until a process is stopped: what was to let it go on before would have no effect. */
static void until_stopped(pid_t process)
{
    char path[64], text[256], *end;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    do {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(text, sizeof text, file));
        fclose(file);
        end = strrchr(text, ')');
        usleep(1000);
    } while (end && end[2] != 'T');
}

int main(int argc, char **argv)
{
    ptl_handle_ni_t ni, matching;
    ptl_handle_ct_t ct, done;
    ptl_handle_le_t le_handle;
    ptl_pt_index_t pt;
    ptl_process_t self, other, map[64];
    ptl_ct_event_t count;
    ptl_rank_t rank;
    ptl_size_t size, mapped;
    uint64_t numbers[2] = {0, 0}, own, one = 1;

    IS(PtlxJobJoin(&rank, &size), PTL_NO_INIT);
    OK(PtlInit());
    IS(PtlxJobFence(), PTL_NO_INIT);
    IS(PtlxJobJoin(NULL, &size), PTL_ARG_INVALID);
    OK(PtlxJobJoin(&rank, &size));
    CHECK(rank < size && size <= 64);
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL, &ni));
    OK(PtlxJobSetMap(ni));
    OK(PtlGetId(ni, &self));
    IS(self.rank, rank);
    OK(PtlGetMap(ni, 64, map, &mapped));
    IS(mapped, size);
    /* A second interface has the map without another exchange. */
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, NULL,
                 &matching));
    OK(PtlxJobSetMap(matching));
    OK(PtlxJobPhysId(matching, rank, &other));
    OK(PtlGetPhysId(matching, &self));
    CHECK(other.phys.nid == self.phys.nid && other.phys.pid == self.phys.pid);
    IS(PtlxJobPhysId(matching, (ptl_rank_t)size, &other), PTL_ARG_INVALID);
    OK(PtlNIFini(matching));

    OK(PtlCTAlloc(ni, &ct));
    OK(PtlCTAlloc(ni, &done));
    OK(PtlPTAlloc(ni, 0, PTL_EQ_NONE, 4, &pt));
    ptl_le_t le = {numbers, sizeof numbers, ct, PTL_UID_ANY, PTL_LE_OP_PUT | PTL_LE_EVENT_CT_COMM};
    OK(PtlLEAppend(ni, pt, &le, PTL_PRIORITY_LIST, NULL, &le_handle));
    OK(PtlxJobFence());
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "kill") == 0) {
        if (rank == 1) raise(SIGKILL);
        /* What is for it fails, once; the others go on. */
        ptl_handle_ct_t lost;
        OK(PtlCTAlloc(ni, &lost));
        ptl_handle_md_t bad = bind_md(ni, &one, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, lost);
        other.rank = 1;
        do {
            OK(PtlPut(bad, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 0, NULL, 0));
            OK(PtlCTWait(lost, PTL_SIZE_MAX, &count));
        } while (count.failure == 0);
        IS(count.failure, 1);
        ptl_handle_md_t good = bind_md(ni, &one, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, done);
        other.rank = 0;
        OK(PtlAtomic(good, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 8, NULL, 0, PTL_SUM, PTL_UINT64_T));
        OK(PtlCTWait(done, 1, &count));
        IS(count.failure, 0);
        if (rank == 0) {
            OK(PtlCTWait(ct, size - 1, &count));
            IS(numbers[1], size - 1);
        }
        PtlFini();
        printf("rank %u lives\n", rank);
        return 0;
    }
    if (strcmp(what, "stop") == 0) {
        /* Rank 0 knows its process, and lets it go on when all others are done. */
        own = (uint64_t)getpid();
        ptl_handle_md_t mine = bind_md(ni, &own, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, done);
        other.rank = 0;
        if (rank == 1) {
            OK(PtlPut(mine, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 0, NULL, 0));
            OK(PtlCTWait(done, 1, &count));
            raise(SIGSTOP);
        } else if (rank > 1) {
            OK(PtlPut(mine, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 8, NULL, 0));
            OK(PtlCTWait(done, 1, &count));
        } else {
            OK(PtlCTWait(ct, size - 1, &count));
            until_stopped((pid_t)numbers[0]);
            kill((pid_t)numbers[0], SIGCONT);
        }
        IS(count.failure, 0);
        OK(PtlxJobFence());
        OK(PtlCTSet(done, (ptl_ct_event_t){0, 0}));
        OK(PtlCTSet(ct, (ptl_ct_event_t){0, 0}));
        numbers[0] = numbers[1] = 0;
        OK(PtlxJobFence());
    }
    own = rank + 100;
    ptl_handle_md_t md = bind_md(ni, &own, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, done);
    ptl_handle_md_t add = bind_md(ni, &one, 8, PTL_MD_EVENT_CT_ACK, PTL_EQ_NONE, done);
    other.rank = (rank + 1) % size;
    OK(PtlPut(md, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 0, NULL, 0));
    other.rank = 0;
    OK(PtlAtomic(add, 0, 8, PTL_CT_ACK_REQ, other, pt, 0, 8, NULL, 0, PTL_SUM, PTL_UINT64_T));
    OK(PtlCTWait(done, 2, &count));
    IS(count.failure, 0);
    OK(PtlCTWait(ct, rank == 0 ? size + 1 : 1, &count));
    IS(numbers[0], (rank + size - 1) % size + 100);
    if (rank == 0) IS(numbers[1], size);
    OK(PtlxJobFence());
    OK(PtlNIFini(ni));
    PtlFini();
    OK(PtlxJobLeave());
    printf("rank %u of %u is done\n", rank, (unsigned)size);
    return 0;
}
