/* A program of MPI that says whether its messages went over the provider petasos: a ring, sums, long
 * messages to all, probes, a receive that is cancelled, access to each other's memory, and threads. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int maps(const char *what)
{
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) found |= strstr(line, what) != NULL;
    if (file) fclose(file);
    return found;
}

static int rank, size, wrong;

/* What is asked for without being received, and what never comes. */
static void probes(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, found, count, gone;
    static int many[50000];
    int lens[] = { 1, 50000 };
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    for (int k = 0; k < 2; k++) {
        MPI_Isend(many, lens[k], MPI_INT, right, 7 + k, MPI_COMM_WORLD, &request);
        MPI_Mprobe(MPI_ANY_SOURCE, 7 + k, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        wrong += count != lens[k] || status.MPI_SOURCE != left;
        int *in = malloc(sizeof many);
        MPI_Mrecv(in, count, MPI_INT, &message, &status);
        free(in);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &found, &status);
    MPI_Irecv(many, 1, MPI_INT, left, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &gone);
    wrong += found || !gone;
}

#ifndef OPEN_MPI
/* Fences, locks, post and start, and sums in the memory of others. */
static void accesses(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int64_t *memory, one = 1, old, here = rank, from = -1;
    MPI_Win window;
    MPI_Group all, to, of;
    MPI_Win_allocate(4 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    memset(memory, 0, 4 * sizeof *memory);
    MPI_Win_fence(0, window);
    MPI_Put(&here, 1, MPI_INT64_T, right, 0, 1, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    wrong += memory[0] != left;
    MPI_Get(&from, 1, MPI_INT64_T, left, 0, 1, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    wrong += from != (left + size - 1) % size;
    for (int k = 0; k < 10; k++) {
        MPI_Win_lock(k % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0, window);
        MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, window);
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 2, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    wrong += rank == 0 && (memory[1] != 10 * size || memory[2] != 10 * size);
    MPI_Win_unlock(rank, window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &right, &to);
    MPI_Group_incl(all, 1, &left, &of);
    MPI_Win_post(of, 0, window);
    MPI_Win_start(to, 0, window);
    MPI_Put(&here, 1, MPI_INT64_T, right, 3, 1, MPI_INT64_T, window);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    wrong += memory[3] != left;
    MPI_Group_free(&all);
    MPI_Group_free(&to);
    MPI_Group_free(&of);
    MPI_Win_free(&window);
}
#endif

/* Two threads of each rank at once. */
static void *exchanges(void *argument)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, tag = *(int *)argument;
    for (int k = 0; k < 50; k++) {
        int out = rank * 1000 + tag + k, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, right, tag, &in, 1, MPI_INT, left, tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        __atomic_fetch_add(&wrong, in != left * 1000 + tag + k, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    enum { LEN = 300000 };
    int sum = 0, token = 42, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, 1 % size, 5, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0) MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    char *out = malloc((size_t)LEN * size), *in = malloc((size_t)LEN * size);
    memset(out, 'a' + rank, (size_t)LEN * size);
    MPI_Alltoall(out, LEN, MPI_CHAR, in, LEN, MPI_CHAR, MPI_COMM_WORLD);
    for (int k = 0; k < size; k++)
        wrong += in[(size_t)LEN * k] != 'a' + k || in[(size_t)LEN * (k + 1) - 1] != 'a' + k;
    probes();
#ifndef OPEN_MPI
    /* Open MPI's one-sided operations do not go over libfabric's. */
    accesses();
#endif
    int tags[] = { 100, 200 };
    pthread_t other;
    wrong += level != MPI_THREAD_MULTIPLE || pthread_create(&other, NULL, exchanges, tags);
    exchanges(tags + 1);
    wrong += pthread_join(other, NULL) != 0;
    printf("rank %d of %d: token %d, sum %d, wrong %d, %s\n", rank, size, token, sum, wrong,
           maps("petasos-fi.so") || maps("petasos_fi.so") ? "over petasos" : "over something else");
    MPI_Finalize();
    return wrong != 0;
}
