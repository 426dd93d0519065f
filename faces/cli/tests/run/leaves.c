/* A program of an MPI of which some ranks do not do what others wait for. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int rank;
    if (!strcmp(what, "never")) return 0;
    if (!strcmp(what, "session")) {
        printf("session %s\n", getsid(0) == getpid() ? "own" : "shared");
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!strcmp(what, "all") || (!strcmp(what, "one") && rank == 1)) _exit(0);
    if (!strcmp(what, "spawn")) {
        char *none = "there-is-no-such-program";
        char **programs = &none;
        int count = 1, status;
        MPI_Info info = MPI_INFO_NULL;
        MPI_Comm children;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int failed = MPI_Comm_spawn_multiple(1, programs, NULL, &count, &info, 0, MPI_COMM_WORLD,
                                             &children, &status);
        printf("rank %d: spawn %s\n", rank, failed == MPI_SUCCESS ? "is done" : "is refused");
        fflush(stdout);
        /* What is left of an MPI after that is its own affair. */
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
