/* The job of a Portals program: rank, size and the map of its processes, as `petasos run` or
 * another launcher says (mpirun and prterun by PMIx, mpiexec and srun by PMI-1). Beyond the
 * specification; programs that speak with their launcher by themselves do not need it, and must not
 * call it.
 *
 * All return PTL_OK; PTL_NO_INIT before PtlInit or PtlxJobJoin; PTL_ARG_INVALID; PTL_FAIL, with a
 * line on standard error, if no launcher started this process or the job is lost.
 */
#ifndef PORTALS4_JOB_H
#define PORTALS4_JOB_H

#include <portals4.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the job: before PtlNIInit, which then takes host and secret of the job. Once; later calls
 * give the same. */
int PtlxJobJoin(ptl_rank_t *rank, ptl_size_t *size);
/* Sets the map of a logical interface (PtlSetMap): rank i is rank i of the job. All ranks call
 * it. */
int PtlxJobSetMap(ptl_handle_ni_t ni_handle);
/* The physical id of a rank, after all have called this or PtlxJobSetMap once. */
int PtlxJobPhysId(ptl_handle_ni_t ni_handle, ptl_rank_t rank, ptl_process_t *id);
/* Returns when all ranks have called it. */
int PtlxJobFence(void);
/* Leaves the job: before the process ends, and after its last operation. */
int PtlxJobLeave(void);

#ifdef __cplusplus
}
#endif

#endif
