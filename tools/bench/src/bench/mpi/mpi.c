/* A ping-pong of two ranks: for each size of the arguments the time one way, and the bandwidth of
 * windows of messages. Rank 0 prints lines of a key and numbers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 9, WINDOW = 32 };

static char *out, *in;
static int rank;

/* Whether a library of this name is in the process. */
static int maps(const char *what)
{
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) found |= strstr(line, what) != NULL;
    if (file) fclose(file);
    return found;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void there_and_back(int size, int count)
{
    for (int k = 0; k < count; k++) {
        if (rank == 0) MPI_Send(out, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, size, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(out, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}

/* How many messages of a size are under way: 128 MiB at most. */
static int window_of(int size)
{
    int many = (128 << 20) / size;
    return many < 1 ? 1 : many > WINDOW ? WINDOW : many;
}

static void windows(int size, int count)
{
    int window = window_of(size);
    MPI_Request all[WINDOW];
    char done;
    for (int k = 0; k < count; k++) {
        for (int w = 0; w < window; w++) {
            if (rank == 0) MPI_Isend(out, size, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &all[w]);
            else MPI_Irecv(in + (size_t)w * size, size, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &all[w]);
        }
        MPI_Waitall(window, all, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&done, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&done, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    }
}

/* The median time of one call, in nanoseconds. Rank 0 says how often a batch calls. */
static double timed(void (*work)(int, int), int size, double batch)
{
    int count = 1;
    double times[BATCHES], begin;
    for (;;) {
        begin = MPI_Wtime();
        work(size, count);
        double took = MPI_Wtime() - begin;
        int enough = took >= batch / 2 || count >= 1 << 24;
        MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (enough) break;
        count *= 2;
    }
    for (int k = 0; k < BATCHES; k++) {
        begin = MPI_Wtime();
        work(size, count);
        times[k] = (MPI_Wtime() - begin) / count * 1e9;
    }
    qsort(times, BATCHES, sizeof *times, by_value);
    return times[BATCHES / 2];
}

int main(int argc, char **argv)
{
    int size, wrong = 0, len = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* A batch takes so many milliseconds. */
    double batch = argc > 1 ? atof(argv[1]) / 1e3 : 0;
    if (size != 2 || argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    size_t longest = 1, room = 1;
    for (int k = 2; k < argc; k++) {
        size_t bytes = atoi(argv[k]), all = bytes * window_of(bytes);
        longest = bytes > longest ? bytes : longest;
        room = all > room ? all : room;
    }
    out = malloc(longest);
    in = malloc(room);
    memset(out, 'a' + rank, longest);
    memset(in, 0, room);
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Get_library_version(library, &len);
    library[strcspn(library, "\n")] = 0;
    for (char *c = library; *c; c++) if (*c == '\t') *c = ' ';
    if (rank == 0) {
        printf("library %s\n", library);
        printf("provider %d\n", maps("petasos-fi.so") || maps("petasos_fi.so"));
    }
    for (int k = 2; k < argc; k++) {
        int bytes = atoi(argv[k]);
        double round_trip = timed(there_and_back, bytes, batch);
        wrong += in[0] != 'a' + !rank || in[bytes - 1] != 'a' + !rank;
        double window = timed(windows, bytes, batch);
        if (rank == 0) {
            printf("latency %d %.3f\n", bytes, round_trip / 2);
            printf("bandwidth %d %.6f\n", bytes, (double)bytes * window_of(bytes) / window);
        }
    }
    if (wrong) MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Finalize();
    return 0;
}
