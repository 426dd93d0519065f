program ring
  use mpi
  implicit none
  integer :: rank, ranks, total, error
  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, rank, error)
  call mpi_comm_size(mpi_comm_world, ranks, error)
  call mpi_allreduce(rank, total, 1, mpi_integer, mpi_sum, mpi_comm_world, error)
  print '(a,i0,a,i0,a,i0)', 'rank ', rank, ' of ', ranks, ', sum ', total
  call mpi_finalize(error)
end program
