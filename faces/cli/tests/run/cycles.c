/* A program of an MPI that finalizes and begins again, as sessions (MPI 4) do; some ranks later than others. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    for (int cycle = 0; cycle < 3; cycle++) {
        MPI_Session session;
        MPI_Group group;
        if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session)) return 2;
        if (MPI_Group_from_session_pset(session, "mpi://WORLD", &group)) return 3;
        MPI_Comm all;
        int rank, size, sum = 0;
        if (MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &all)) return 4;
        MPI_Comm_rank(all, &rank);
        MPI_Comm_size(all, &size);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        printf("cycle %d: rank %d of %d, sum %d\n", cycle, rank, size, sum);
        MPI_Comm_free(&all);
        fflush(stdout);
        MPI_Group_free(&group);
        MPI_Session_finalize(&session);
        if (rank == 0) usleep(300000);
    }
    return 0;
}
