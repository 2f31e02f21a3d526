#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/job.h"

void launch_job_say(struct launch_job *job, const char *format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  launch_relay_say(job->relay, "gradmesh: %s", text);
}

/* ---- words
 * -----------------------------------------------------------------------------------
 */

const char *launch_describe_end(const struct launch_rank *rank, char *text,
                                size_t text_bytes) {
  char name[32];
  if (rank->was_stopped) {
    snprintf(text, text_bytes,
             "was stopped (SIGSTOP or job control) and did not go on, so the "
             "others gave up");
  } else if (!rank->has_ended) {
    snprintf(text, text_bytes, "has not ended");
  } else if (rank->signal == SIGKILL && !rank->was_ended_by_us) {
    snprintf(text, text_bytes,
             "was killed by SIGKILL (sent by somebody, or by the kernel for "
             "lack of memory)");
  } else if (rank->signal != 0) {
    snprintf(text, text_bytes, "was killed by %s (%s)",
             launch_signal_name(rank->signal, name, sizeof name),
             strsignal(rank->signal));
  } else {
    snprintf(text, text_bytes, "exited with status %d", rank->exit_status);
  }
  return text;
}

/* "rank 3", or "ranks 0, 1, 4-7": those whose wanted[] is set. Returns how
 * many. */
static int list_ranks(const bool *wanted, int n_ranks, char *text,
                      size_t text_bytes) {
  size_t used = 0;
  int n = 0;
  text[0] = '\0';
  for (int r = 0; r < n_ranks; r++) {
    if (!wanted[r])
      continue;
    int last = r;
    while (last + 1 < n_ranks && wanted[last + 1])
      last++;
    if (last == r + 1)
      last = r; /* "1, 2" reads better than "1-2" */
    char piece[32];
    if (last > r)
      snprintf(piece, sizeof piece, "%d-%d", r, last);
    else
      snprintf(piece, sizeof piece, "%d", r);
    if (used + strlen(piece) + 8 < text_bytes) {
      used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                               n ? ", " : "", piece);
    }
    n += last - r + 1;
    r = last;
  }
  return n;
}

/* ---- the last block
 * -------------------------------------------------------------------------- */

static void say_last_line(void *user, const char *text, int n_bytes) {
  enum { MOST_BYTES = 1000 };
  launch_job_say(user, "  | %.*s", n_bytes < MOST_BYTES ? n_bytes : MOST_BYTES,
                 text);
}

static bool have_same_end(const struct launch_rank *a,
                          const struct launch_rank *b) {
  return a->has_ended == b->has_ended &&
         a->was_ended_by_us == b->was_ended_by_us && a->signal == b->signal &&
         a->exit_status == b->exit_status;
}

/* "were ended by the launcher (SIGTERM)", for the rank or ranks that share this
 * end. */
static const char *describe_ends(const struct launch_rank *rank, int n_ranks,
                                 char *text, size_t text_bytes) {
  char name[32], how[160];
  const char *was = n_ranks > 1 ? "were" : "was";
  launch_describe_end(rank, how, sizeof how);
  if (rank->was_ended_by_us) {
    snprintf(text, text_bytes, "%s ended by the launcher (%s)", was,
             launch_signal_name(rank->signal, name, sizeof name));
  } else if (rank->signal != 0) {
    snprintf(text, text_bytes, "%s%s", was, how + strlen("was"));
  } else {
    snprintf(text, text_bytes, "%s", how);
  }
  return text;
}

/* One line for each way in which ranks other than the first ended. */
static void say_the_others(struct launch_job *job, int first) {
  const struct launch_result *result = job->result;
  bool is_told[LAUNCH_MAX_WORKERS] = {false};
  for (int r = 0; r < result->n_ranks; r++) {
    if (r == first || is_told[r])
      continue;
    bool is_alike[LAUNCH_MAX_WORKERS] = {false};
    for (int s = r; s < result->n_ranks; s++) {
      if (s != first && have_same_end(&result->ranks[r], &result->ranks[s]))
        is_alike[s] = is_told[s] = true;
    }
    char who[512], how[200];
    int n = list_ranks(is_alike, result->n_ranks, who, sizeof who);
    bool is_unharmed = launch_blame_of(&result->ranks[r]) == LAUNCH_INNOCENT &&
                       !result->ranks[r].was_ended_by_us;
    const char *cause = is_unharmed ? "" : "as a consequence, ";
    launch_job_say(job, "  %s%s %s %s", cause, n > 1 ? "ranks" : "rank", who,
                   describe_ends(&result->ranks[r], n, how, sizeof how));
  }
}

static void say_failure(struct launch_job *job) {
  int first = job->result->first_failed;
  const struct launch_rank *rank = &job->result->ranks[first];
  char how[160];
  launch_job_say(job, "rank %d failed first: it %s, %.3f s after the start",
                 first, launch_describe_end(rank, how, sizeof how),
                 (double)rank->elapsed_ns / (double)GMI_NS_PER_S);
  if (launch_blame_of(rank) == LAUNCH_REPORTS_ANOTHER && !rank->was_stopped) {
    launch_job_say(
        job, "  (status 3 means that another rank failed, but no other has)");
  }
  if (launch_relay_last_lines(job->relay, first, say_last_line, job) == 0) {
    launch_job_say(job, "  it wrote nothing to standard error");
  }
  say_the_others(job, first);
}

static void say_signal(struct launch_job *job) {
  char name[32];
  launch_signal_name(job->result->signal, name, sizeof name);
  launch_job_say(job,
                 job->was_killed
                     ? "stopped by %s; what did not end by itself was killed"
                     : "stopped by %s",
                 name);
}

static void say_timeout(struct launch_job *job) {
  char who[512];
  bool was_running[LAUNCH_MAX_WORKERS] = {false};
  for (int r = 0; r < job->result->n_ranks; r++) {
    was_running[r] = job->result->ranks[r].elapsed_ns >=
                     job->options->timeout_ms * GMI_NS_PER_MS;
  }
  int n = list_ranks(was_running, job->result->n_ranks, who, sizeof who);
  launch_job_say(job,
                 "the time limit of %g s has passed; the job was ended while "
                 "%s %s still ran",
                 (double)job->options->timeout_ms / 1000.0,
                 n > 1 ? "ranks" : "rank", who);
}

static void say_output(struct launch_job *job) {
  int reason = launch_relay_broken(job->relay, LAUNCH_STDOUT);
  bool is_stdout = reason != 0;
  if (!is_stdout)
    reason = launch_relay_broken(job->relay, LAUNCH_STDERR);
  if (reason == EPIPE)
    launch_job_say(job,
                   "the reader of standard %s has gone, so the job was ended",
                   is_stdout ? "output" : "error");
  else
    launch_job_say(job, "cannot write standard %s, so the job was ended: %s",
                   is_stdout ? "output" : "error", strerror(reason));
}

/* Ranks that never met train alone, and nothing else shows it. */
static void say_who_joined(struct launch_job *job) {
  int n_joined = job->result->n_ranks_joined, n = job->options->n_workers;
  if (job->options->has_small_worlds)
    return;
  if (n_joined > 0 && n_joined < n) {
    launch_job_say(job,
                   "warning: only %d of %d ranks joined the job; the others "
                   "ran by themselves",
                   n_joined, n);
  } else if (n_joined == 0 && n > 1) {
    launch_job_say(job,
                   "warning: no rank joined the job; %d programs ran side by "
                   "side, each by itself (do they use gradmesh?)",
                   n);
  }
}

void launch_job_say_last_words(struct launch_job *job) {
  switch (job->result->end) {
  case LAUNCH_END_DONE:
    say_who_joined(job);
    break;
  case LAUNCH_END_FAILURE:
    say_failure(job);
    break;
  case LAUNCH_END_SIGNAL:
    say_signal(job);
    break;
  case LAUNCH_END_TIMEOUT:
    say_timeout(job);
    break;
  case LAUNCH_END_OUTPUT:
    say_output(job);
    break;
  case LAUNCH_END_START:
    break;
  }
}
