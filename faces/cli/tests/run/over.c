/* A program of MPI that says whether its messages went over the provider petasos: a ring, sums, and
 * long messages to all. */
#include <mpi.h>
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

int main(int argc, char **argv)
{
    enum { LEN = 300000 };
    int rank, size, sum = 0, token = 42;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, 1 % size, 5, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0) MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    char *out = malloc((size_t)LEN * size), *in = malloc((size_t)LEN * size);
    memset(out, 'a' + rank, (size_t)LEN * size);
    MPI_Alltoall(out, LEN, MPI_CHAR, in, LEN, MPI_CHAR, MPI_COMM_WORLD);
    int wrong = 0;
    for (int k = 0; k < size; k++)
        wrong += in[(size_t)LEN * k] != 'a' + k || in[(size_t)LEN * (k + 1) - 1] != 'a' + k;
    printf("rank %d of %d: token %d, sum %d, wrong %d, %s\n", rank, size, token, sum, wrong,
           maps("petasos-fi.so") || maps("petasos_fi.so") ? "over petasos" : "over something else");
    MPI_Finalize();
    return wrong != 0;
}
