#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/check.h"
#include "base/clock.h"
#include "launch/job.h"
#include "launch/stopped.h"

enum {
  SETTLE_MS =
      60, /* a victim may be reaped before the culprit, which is waited for */
  LAST_WORDS_MS =
      700, /* in which connected ranks find out, and say, who failed */
  SWEEP_GRACE_MS =
      1000, /* between TERM and KILL, for what a finished worker left behind */
  SWEEP_LIMIT_MS =
      10000, /* one that cannot die (it hangs in the kernel) is left */
  DRAIN_LIMIT_MS =
      2000, /* for a reader that does not read, once the job was told to stop */
  STOPPED_MS = 900, /* a worker that is stopped may be why others fail */
};

/* ---- who failed first
 * ------------------------------------------------------------------------ */

/* A signal that we did not send cannot be a consequence of a lost connection;
 * an exit status other than 3 seldom says "another rank failed"; status 3 says
 * just that. */
enum launch_blame launch_blame_of(const struct launch_rank *rank) {
  if (!rank->has_ended || rank->was_ended_by_us)
    return LAUNCH_INNOCENT;
  if (rank->signal != 0)
    return LAUNCH_WAS_KILLED;
  if (rank->exit_status == 0)
    return LAUNCH_INNOCENT;
  return rank->exit_status == LAUNCH_EXIT_PEER_FAILED ? LAUNCH_REPORTS_ANOTHER
                                                      : LAUNCH_FAILED;
}

/* ---- ending
 * ----------------------------------------------------------------------------------
 */

void launch_job_signal(struct launch_job *job, int signal) {
  for (int r = 0; r < job->result->n_ranks; r++) {
    const struct launch_rank *rank = &job->result->ranks[r];
    if (!rank->was_started || rank->has_ended)
      continue;
    kill(-rank->pid, signal);
    kill(-rank->pid, SIGCONT); /* a stopped one would never hear of it */
  }
  job->sent_signal = signal;
  job->was_killed = job->was_killed || signal == SIGKILL;
}

void launch_job_enter(struct launch_job *job, enum launch_job_state state) {
  GMI_CHECK(state > job->state);
  job->state = state;
  switch (state) {
  case LAUNCH_SETTLING: {
    /* Who says by status 3 that another rank failed is believed; that one may
     * be slow to die.
     */
    bool is_report =
        launch_blame_of(&job->result->ranks[job->result->first_failed]) ==
        LAUNCH_REPORTS_ANOTHER;
    job->noticed_ns = gmi_now_ns();
    job->settle_ns =
        gmi_deadline_after_ms(is_report ? LAST_WORDS_MS : SETTLE_MS);
    break;
  }
  case LAUNCH_SWEEPING:
    job->kill_ns = gmi_deadline_after_ms(SWEEP_GRACE_MS);
    job->give_up_ns = gmi_deadline_after_ms(SWEEP_LIMIT_MS);
    job->sweep_ns = gmi_now_ns();
    break;
  case LAUNCH_DRAINING:
    launch_relay_finish(job->relay);
    job->give_up_ns = gmi_deadline_after_ms(DRAIN_LIMIT_MS);
    break;
  case LAUNCH_REPORTING:
    job->result->n_ranks_joined = gmi_store_server_ranks_seen(job->store);
    launch_job_say_last_words(job);
    break;
  default:
    break;
  }
}

void launch_job_end(struct launch_job *job, enum launch_end why, int signal,
                    int64_t grace_ms) {
  job->result->end = why;
  launch_job_enter(job, LAUNCH_ENDING);
  job->term_ns = GMI_NEVER;
  job->kill_ns = gmi_deadline_after_ms(grace_ms);
  launch_job_signal(job, signal);
}

/* A rank that was stopped is the cause of what others report, though it has not
 * ended. */
static int blame_who_is_stopped(struct launch_job *job, int rank) {
  struct launch_rank *ranks = job->result->ranks;
  enum launch_blame blame = launch_blame_of(&ranks[rank]);
  if (blame != LAUNCH_REPORTS_ANOTHER && blame != LAUNCH_FAILED)
    return rank;
  launch_stopped_look(ranks, job->result->n_ranks);
  int stopped = launch_stopped_find(ranks, job->result->n_ranks,
                                    blame == LAUNCH_FAILED ? STOPPED_MS : 0);
  if (stopped < 0)
    return rank;
  ranks[stopped].was_stopped = true;
  ranks[stopped].elapsed_ns = ranks[stopped].stopped_ns - job->start_ns;
  return stopped;
}

/* Ranks that have met will notice the failure, name it and exit by themselves;
 * a TERM at once would take the word from them. The others, which may not even
 * know gradmesh, are ended right away. */
void launch_job_end_for_failure(struct launch_job *job, int rank) {
  bool have_met =
      gmi_store_server_ranks_seen(job->store) >= job->result->n_ranks;
  rank = blame_who_is_stopped(job, rank);
  job->result->first_failed = rank;
  if (!have_met) {
    launch_job_end(job, LAUNCH_END_FAILURE, SIGTERM, LAUNCH_FAILURE_GRACE_MS);
    return;
  }
  job->result->end = LAUNCH_END_FAILURE;
  job->term_ns =
      (job->state == LAUNCH_SETTLING ? job->noticed_ns : gmi_now_ns()) +
      LAST_WORDS_MS * GMI_NS_PER_MS;
  job->kill_ns = job->term_ns + LAUNCH_FAILURE_GRACE_MS * GMI_NS_PER_MS;
  launch_job_enter(job, LAUNCH_ENDING);
}

void launch_job_end_politely(struct launch_job *job) {
  job->term_ns = GMI_NEVER;
  launch_job_signal(job, SIGTERM);
}

void launch_job_end_now(struct launch_job *job) {
  job->kill_ns = gmi_now_ns();
  if (job->state == LAUNCH_ENDING)
    launch_job_signal(job, SIGKILL);
  job->was_killed = true;
}

/* ---- deaths
 * ----------------------------------------------------------------------------------
 */

static int find_pid(const struct launch_job *job, pid_t pid) {
  for (int r = 0; r < job->result->n_ranks; r++) {
    const struct launch_rank *rank = &job->result->ranks[r];
    if (rank->was_started && !rank->has_ended && rank->pid == pid)
      return r;
  }
  return -1;
}

static void record_death(struct launch_job *job, int r, int wait_status) {
  struct launch_rank *rank = &job->result->ranks[r];
  rank->has_ended = true;
  if (!rank->was_stopped)
    rank->elapsed_ns = gmi_now_ns() - job->start_ns;
  rank->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  rank->exit_status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
  rank->was_ended_by_us =
      rank->signal != 0 && (rank->signal == job->sent_signal ||
                            (rank->signal == SIGKILL && job->was_killed));
  job->n_alive--;
  if (kill(-rank->pid, 0) != 0 && errno == ESRCH)
    launch_guardian_forget(&job->guardian, rank->pid);
  if (job->options->is_verbose) {
    char how[160];
    launch_job_say(job, "rank %d %s after %.3f s", r,
                   launch_describe_end(rank, how, sizeof how),
                   (double)rank->elapsed_ns / (double)GMI_NS_PER_S);
  }
}

void launch_job_reap(struct launch_job *job) {
  pid_t pid;
  int wait_status;
  while (launch_deaths_next(&job->deaths, &pid, &wait_status)) {
    if (pid == job->guardian.pid)
      job->guardian.pid = 0;
    int r = find_pid(job, pid);
    if (r < 0)
      continue; /* an orphan that we had adopted */
    record_death(job, r, wait_status);
    if (job->state > LAUNCH_SETTLING)
      continue;
    /* Deaths come in their order. One that weighs more than the suspect takes
     * its place. */
    const struct launch_rank *ranks = job->result->ranks;
    int suspect = job->result->first_failed;
    if (launch_blame_of(&ranks[r]) >
        (suspect < 0 ? LAUNCH_INNOCENT : launch_blame_of(&ranks[suspect])))
      job->result->first_failed = r;
  }
  int suspect = job->result->first_failed;
  if (job->state > LAUNCH_SETTLING || suspect < 0)
    return;
  /* Somebody else may be the cause and only be slower to die: one that reports
   * another is believed, and one that has begun to die is waited for. Not for
   * long. */
  bool may_be_another =
      launch_blame_of(&job->result->ranks[suspect]) == LAUNCH_REPORTS_ANOTHER ||
      launch_deaths_has_dying(&job->deaths);
  if (job->n_alive == 0 || !may_be_another)
    launch_job_end_for_failure(job, suspect);
  else if (job->state == LAUNCH_RUNNING)
    launch_job_enter(job, LAUNCH_SETTLING);
}
