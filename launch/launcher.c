/* The life of a job:
 *
 *     running --status 3--> settling --+                      (who failed first
 * is not known yet) |                             |
 *        +-- failure, signal, time-out, closed output --> ending --> (TERM,
 * KILL after a grace) |                                                   |
 *        +------ every worker has ended ---------------------+
 *                                                            v
 *                                 sweeping   what the workers left behind is
 * ended
 *                                                            v
 *                                 draining   the rest of their output is passed
 * on
 *                                                            v
 *                                 reporting  the last block is said  --> over
 *
 * 1. `state` changes in launch_job_enter() alone, and only to the right.
 * 2. Why the job ends (`result->end`) is decided once; what comes later is a
 * consequence.
 * 3. After sweeping nothing of the job is alive, so whatever was written lies
 * in the pipes.
 * 4. Output is passed on in every state; the last words of the launcher come
 * after all of it. */
#include "launch/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "launch/hunt.h"
#include "launch/job.h"
#include "launch/stopped.h"

enum {
  SIGNAL_GRACE_MS = 3000, /* between the user's signal and KILL */
  SWEEP_TICK_MS = 10,
  TICK_MS = 1000, /* the store wants a step that often */
};

/* ---- events
 * ----------------------------------------------------------------------------------
 */

static void stop_like_the_user_wants(struct launch_job *job) {
  /* Ctrl-Z: the workers stand in other process groups, so the terminal did not
   * tell them. */
  for (int r = 0; r < job->result->n_ranks; r++) {
    if (!job->result->ranks[r].has_ended)
      kill(-job->result->ranks[r].pid, SIGTSTP);
  }
  raise(SIGSTOP);
  for (int r = 0; r < job->result->n_ranks; r++) {
    if (!job->result->ranks[r].has_ended)
      kill(-job->result->ranks[r].pid, SIGCONT);
  }
}

static void take_signals(struct launch_job *job) {
  int signal;
  while ((signal = launch_signals_next(&job->signals)) != 0) {
    if (signal == SIGCHLD)
      continue; /* launch_job_reap() looks anyway */
    if (signal == SIGTSTP) {
      stop_like_the_user_wants(job);
    } else if (job->state == LAUNCH_RUNNING) {
      job->result->signal = signal;
      launch_job_end(job, LAUNCH_END_SIGNAL, signal, SIGNAL_GRACE_MS);
    } else {
      /* The second one, or a job that is ending anyway: the user wants it gone.
       */
      if (job->state == LAUNCH_SETTLING)
        launch_job_end_for_failure(job, job->result->first_failed);
      launch_job_end_now(job);
      if (job->state >= LAUNCH_DRAINING)
        job->gives_up_output = true;
    }
  }
}

static void check_output(struct launch_job *job) {
  bool is_broken = launch_relay_broken(job->relay, LAUNCH_STDOUT) ||
                   launch_relay_broken(job->relay, LAUNCH_STDERR);
  if (is_broken && job->state == LAUNCH_RUNNING)
    launch_job_end(job, LAUNCH_END_OUTPUT, SIGTERM, LAUNCH_FAILURE_GRACE_MS);
}

/* Whoever descends from a worker has a child of ours among its ancestors, or is
 * one, since orphans are handed to us. So no child (but those that are spared)
 * means that nobody is left. */
static bool has_offspring(const struct launch_job *job) {
  pid_t children[LAUNCH_MAX_SPARED + 1];
  size_t n = launch_list_children(children, LAUNCH_MAX_SPARED + 1);
  for (size_t i = 0; i < n; i++) {
    bool is_spared = false;
    for (size_t j = 0; j < job->n_spared; j++)
      is_spared = is_spared || job->spared[j] == children[i];
    if (!is_spared)
      return true;
  }
  return false;
}

static void sweep(struct launch_job *job) {
  bool is_deadly = job->was_killed || gmi_deadline_passed(job->kill_ns);
  const struct launch_hunt hunt = {.job_id = job->result->job_id,
                                   .ancestor = getpid(),
                                   .spared = job->spared,
                                   .n_spared = job->n_spared,
                                   .born_ticks = job->born_ticks};
  bool is_polite = job->n_sweeps++ == 0;
  int n_left = has_offspring(job) ? launch_hunt(&hunt, is_deadly   ? SIGKILL
                                                       : is_polite ? SIGTERM
                                                                   : 0)
                                  : 0;
  job->sweep_ns = gmi_deadline_after_ms(SWEEP_TICK_MS);
  if (n_left > 0 && gmi_deadline_passed(job->give_up_ns)) {
    launch_job_say(job,
                   "%d processes of the job cannot be ended; the kernel does "
                   "not let go of them",
                   n_left);
    n_left = 0;
  }
  if (n_left <= 0)
    launch_job_enter(job, LAUNCH_DRAINING);
}

/* A slow reader is waited for as long as it takes, unless somebody wants the
 * job to stop. */
static bool is_output_done(const struct launch_job *job) {
  bool was_told_to_stop = job->result->end == LAUNCH_END_SIGNAL ||
                          job->result->end == LAUNCH_END_TIMEOUT;
  return launch_relay_is_idle(job->relay) || job->gives_up_output ||
         (was_told_to_stop && gmi_deadline_passed(job->give_up_ns));
}

/* Lets time and the deaths of workers take their effect. */
static void advance(struct launch_job *job) {
  if (job->state == LAUNCH_RUNNING && gmi_deadline_passed(job->timeout_ns)) {
    launch_job_end(job, LAUNCH_END_TIMEOUT, SIGTERM, LAUNCH_FAILURE_GRACE_MS);
  }
  if (job->state == LAUNCH_SETTLING && gmi_deadline_passed(job->settle_ns))
    launch_job_end_for_failure(job, job->result->first_failed);
  if (job->state == LAUNCH_ENDING && !job->was_killed &&
      gmi_deadline_passed(job->term_ns))
    launch_job_end_politely(job);
  if (job->state == LAUNCH_ENDING && !job->was_killed &&
      gmi_deadline_passed(job->kill_ns))
    launch_job_signal(job, SIGKILL);
  if (job->state < LAUNCH_SWEEPING && job->n_alive == 0)
    launch_job_enter(job, LAUNCH_SWEEPING);
  if (job->state == LAUNCH_SWEEPING && gmi_deadline_passed(job->sweep_ns))
    sweep(job);
  if (job->state == LAUNCH_DRAINING && is_output_done(job))
    launch_job_enter(job, LAUNCH_REPORTING);
  if (job->state == LAUNCH_REPORTING && is_output_done(job))
    launch_job_enter(job, LAUNCH_OVER);
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t next_deadline(const struct launch_job *job) {
  int64_t at = gmi_deadline_after_ms(TICK_MS);
  switch (job->state) {
  case LAUNCH_RUNNING:
    return earlier(at, job->timeout_ns);
  case LAUNCH_SETTLING:
    return earlier(at, job->settle_ns);
  case LAUNCH_ENDING:
    return job->was_killed ? at
                           : earlier(at, earlier(job->term_ns, job->kill_ns));
  case LAUNCH_SWEEPING:
    return job->sweep_ns;
  case LAUNCH_DRAINING:
  case LAUNCH_REPORTING:
    return gmi_deadline_passed(job->give_up_ns) ? at
                                                : earlier(at, job->give_up_ns);
  case LAUNCH_OVER:
    break;
  }
  return at;
}

static void look_for_stopped(struct launch_job *job) {
  if (job->state != LAUNCH_RUNNING || !gmi_deadline_passed(job->look_ns))
    return;
  launch_stopped_look(job->result->ranks, job->result->n_ranks);
  job->look_ns = gmi_deadline_after_ms(TICK_MS);
}

static void see_to_its_end(struct launch_job *job) {
  while (job->state != LAUNCH_OVER) {
    gmi_poller_clear(&job->poller);
    gmi_poller_add(&job->poller, job->signals.pipe_fds[0], GMI_READABLE);
    if (job->deaths.epoll_fd >= 0)
      gmi_poller_add(&job->poller, job->deaths.epoll_fd, GMI_READABLE);
    gmi_store_server_watch(job->store, &job->poller);
    launch_relay_watch(job->relay, &job->poller);
    /* Without memory for the poller nothing can be watched; a short sleep keeps
     * the job in sight. */
    if (gmi_poller_wait(&job->poller, next_deadline(job)) == GM_ERR_NOMEM)
      usleep(10000);
    look_for_stopped(job);
    take_signals(job);
    launch_job_reap(job);
    gmi_store_server_step(job->store);
    launch_relay_step(job->relay, &job->poller);
    check_output(job);
    advance(job);
  }
}

/* ---- the whole
 * -------------------------------------------------------------------------------
 */

/* A closed standard descriptor would be the next pipe's number. */
static void open_standard_descriptors(void) {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) < 0) {
      int null_fd = open("/dev/null", O_RDWR);
      (void)null_fd; /* the lowest free number: fd */
    }
  }
}

static int exit_status_of(const struct launch_job *job) {
  const struct launch_result *result = job->result;
  switch (result->end) {
  case LAUNCH_END_DONE:
    return 0;
  case LAUNCH_END_FAILURE: {
    const struct launch_rank *rank = &result->ranks[result->first_failed];
    if (rank->was_stopped)
      return LAUNCH_EXIT_SIGNAL + SIGSTOP;
    return rank->signal ? LAUNCH_EXIT_SIGNAL + rank->signal : rank->exit_status;
  }
  case LAUNCH_END_SIGNAL:
    return LAUNCH_EXIT_SIGNAL + result->signal;
  case LAUNCH_END_TIMEOUT:
    return LAUNCH_EXIT_TIMEOUT;
  case LAUNCH_END_OUTPUT: {
    int reason = launch_relay_broken(job->relay, LAUNCH_STDOUT);
    if (reason == 0)
      reason = launch_relay_broken(job->relay, LAUNCH_STDERR);
    return reason == EPIPE ? LAUNCH_EXIT_SIGNAL + SIGPIPE : LAUNCH_EXIT_SYSTEM;
  }
  case LAUNCH_END_START:
    break;
  }
  return result->exit_status;
}

/* The start failed half-way: those that run already are killed, and their
 * output shown. */
static void give_up(struct launch_job *job) {
  job->result->end = LAUNCH_END_START;
  launch_job_enter(job, LAUNCH_ENDING);
  launch_job_signal(job, SIGKILL);
  see_to_its_end(job);
}

gm_status launch_run(const struct launch_options *options,
                     struct launch_result *result, gm_error *error) {
  GMI_CHECK(options->n_workers >= 1 &&
            options->n_workers <= LAUNCH_MAX_WORKERS);
  gm_error own_error;
  if (error == NULL)
    error = &own_error;
  gmi_error_clear(error);
  *result = (struct launch_result){.exit_status = LAUNCH_EXIT_SYSTEM,
                                   .end = LAUNCH_END_START,
                                   .first_failed = -1};
  open_standard_descriptors();
  struct launch_job job = {.options = options,
                           .result = result,
                           .master_fd = -1,
                           .secret = {.fd = -1},
                           .start_ns = gmi_now_ns(),
                           .guardian = {.pipe_fd = -1},
                           .deaths = {.epoll_fd = -1},
                           .timeout_ns = GMI_NEVER};
  getrlimit(RLIMIT_NOFILE, &job.descriptors);
  gmi_poller_init(&job.poller);
  result->ranks = gmi_alloc((size_t)options->n_workers, sizeof *result->ranks);
  if (result->ranks == NULL)
    return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %d workers",
                         options->n_workers);
  result->n_ranks = options->n_workers;

  gm_status status = launch_job_prepare(&job, error);
  if (status == GM_OK)
    status = launch_job_take_charge(&job, error);
  if (status == GM_OK) {
    launch_job_say_where(&job);
    job.start_ns = gmi_now_ns();
    job.timeout_ns = gmi_deadline_after_ms(options->timeout_ms);
    status = launch_job_start_workers(&job, error);
    if (status == GM_OK) {
      result->end = LAUNCH_END_DONE;
      see_to_its_end(&job);
    } else {
      give_up(&job);
    }
    result->elapsed_ns = gmi_now_ns() - job.start_ns;
    result->exit_status = exit_status_of(&job);
  }
  launch_job_release(&job);
  return status;
}

void launch_result_fini(struct launch_result *result) {
  gmi_free(result->ranks);
  result->ranks = NULL;
  result->n_ranks = 0;
}
