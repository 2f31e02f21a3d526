#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "launch/hunt.h"
#include "launch/job.h"
#include "launch/worker.h"

enum {
  FD_RESERVE = 32,    /* descriptors beside those that grow with the workers */
  FDS_PER_WORKER = 4, /* two pipes, a pidfd, a connection to the store */
};

static void on_store_log(void *user, gm_log_level level, const char *line) {
  (void)level;
  launch_job_say(user, "%s", line);
}

static gm_status make_job_id(char *job_id, gm_error *error) {
  unsigned char bytes[12];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
    return gmi_error_set_errno(error, errno, "no random job id");
  }
  for (size_t i = 0; i < sizeof bytes; i++)
    snprintf(job_id + 2 * i, 3, "%02x", bytes[i]);
  return GM_OK;
}

static gm_status raise_descriptor_limit(struct launch_job *job,
                                        gm_error *error) {
  rlim_t needed =
      (rlim_t)FDS_PER_WORKER * (rlim_t)job->options->n_workers + FD_RESERVE;
  if (getrlimit(RLIMIT_NOFILE, &job->descriptors) != 0) {
    return gmi_error_set_errno(error, errno,
                               "cannot read the limit on open descriptors");
  }
  struct rlimit raised = job->descriptors;
  if (raised.rlim_max < needed) {
    return gmi_error_set(
        error, GM_ERR_SYSTEM,
        "%d workers need %llu open descriptors in the launcher, but the limit "
        "is %llu (ulimit -n)",
        job->options->n_workers, (unsigned long long)needed,
        (unsigned long long)raised.rlim_max);
  }
  if (raised.rlim_cur < needed) {
    raised.rlim_cur = needed;
    setrlimit(RLIMIT_NOFILE, &raised);
  }
  return GM_OK;
}

/* A second port, for programs that serve a store of their own at MASTER_PORT.
 * Bound, so that nobody is given it by chance; not listening and with
 * SO_REUSEADDR, so that a worker that asks for the same can bind and listen
 * there. */
static gm_status reserve_master_port(struct launch_job *job, gm_error *error) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n_bytes = sizeof address;
  int one = 1;
  job->master_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (job->master_fd < 0 ||
      setsockopt(job->master_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) !=
          0 ||
      bind(job->master_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
      getsockname(job->master_fd, (struct sockaddr *)&address, &n_bytes) != 0) {
    return gmi_error_set_errno(error, errno,
                               "no port on 127.0.0.1 for MASTER_PORT");
  }
  job->master_port = ntohs(address.sin_port);
  return GM_OK;
}

static gm_status list_cores(struct launch_job *job, gm_error *error) {
  enum { MOST_CORES = 8192 };
  cpu_set_t *set = CPU_ALLOC(MOST_CORES);
  size_t n_bytes = CPU_ALLOC_SIZE(MOST_CORES);
  job->cores = gmi_alloc(MOST_CORES, sizeof *job->cores);
  gm_status status = GM_OK;
  if (set == NULL || job->cores == NULL)
    status =
        gmi_error_set(error, GM_ERR_NOMEM, "no memory for the list of cores");
  else if (sched_getaffinity(0, n_bytes, set) != 0)
    status = gmi_error_set_errno(error, errno, "cannot read the mask of cores");
  else
    for (int core = 0; core < MOST_CORES; core++) {
      if (CPU_ISSET_S((size_t)core, n_bytes, set))
        job->cores[job->n_cores++] = core;
    }
  if (set != NULL)
    CPU_FREE(set);
  return status;
}

/* A mask that was set further out (taskset, a batch system, a container) is
 * kept, and easily overlooked. */
static void say_if_few_cores(struct launch_job *job) {
  long n_online = sysconf(_SC_NPROCESSORS_ONLN);
  int n = job->options->n_workers;
  if (n < 2 || job->n_cores == 0 || job->n_cores >= n ||
      job->n_cores >= n_online)
    return;
  if (job->n_cores == 1) {
    launch_job_say(job,
                   "warning: all %d workers share core %d: this process may "
                   "use no other of the %ld (its affinity mask, as "
                   "set by taskset, a batch system or a container)",
                   n, job->cores[0], n_online);
  } else {
    launch_job_say(job,
                   "warning: %d workers share %d cores: this process may use "
                   "no others of the %ld (its affinity mask)",
                   n, job->n_cores, n_online);
  }
}

static gm_status create_relay(struct launch_job *job, gm_error *error) {
  const struct launch_options *o = job->options;
  const struct launch_relay_options relay = {
      .n_workers = o->n_workers,
      .fds = {STDOUT_FILENO, STDERR_FILENO},
      .has_prefix = {o->prefix_stdout, o->prefix_stderr},
      .has_colour = {o->colour_stdout, o->colour_stderr},
      .stdout_to_stderr = o->stdout_to_stderr,
  };
  job->relay = launch_relay_create(&relay);
  if (job->relay == NULL)
    return gmi_error_set(error, GM_ERR_NOMEM,
                         "no memory for the output of %d workers",
                         o->n_workers);
  return GM_OK;
}

gm_status launch_job_prepare(struct launch_job *job, gm_error *error) {
  const struct launch_options *o = job->options;
  gm_status status = make_job_id(job->result->job_id, error);
  if (status == GM_OK)
    status = raise_descriptor_limit(job, error);
  if (status == GM_OK)
    status = create_relay(job, error);
  if (status == GM_OK)
    status = list_cores(job, error);
  if (status == GM_OK &&
      !launch_deaths_init(&job->deaths, (size_t)o->n_workers)) {
    status = gmi_error_set_errno(error, ENOMEM, "cannot watch %d workers",
                                 o->n_workers);
  }
  if (status == GM_OK && !launch_signals_catch(&job->signals)) {
    status = gmi_error_set_errno(error, errno, "cannot catch signals");
  }
  if (status != GM_OK)
    return status;
  job->log =
      (struct gmi_log){.write = on_store_log,
                       .user = job,
                       .level = o->is_verbose ? GM_LOG_INFO : GM_LOG_WARN};
  status = launch_secret_init(&job->secret, error);
  if (status == GM_OK)
    status = gmi_store_server_create(&job->store, "127.0.0.1", o->port,
                                     job->result->job_id, &job->secret.secret,
                                     &job->log, error);
  if (status == GM_OK)
    status = reserve_master_port(job, error);
  return status;
}

gm_status launch_job_take_charge(struct launch_job *job, gm_error *error) {
  job->is_in_charge = true;
  job->born_ticks = launch_birth_ticks();
  prctl(PR_GET_CHILD_SUBREAPER, &job->was_subreaper);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  job->n_spared = launch_list_children(job->spared, LAUNCH_MAX_SPARED - 1);
  launch_signals_hold(&job->signals);
  bool is_guarded = launch_guardian_start(&job->guardian, job->result->job_id);
  int reason = errno;
  launch_signals_resume(&job->signals);
  if (!is_guarded)
    return gmi_error_set_errno(error, reason,
                               "cannot start the guardian process");
  job->spared[job->n_spared++] = job->guardian.pid;
  return GM_OK;
}

gm_status launch_job_start_workers(struct launch_job *job, gm_error *error) {
  const struct launch_options *o = job->options;
  const struct launch_spawn spawn = {
      .n_workers = o->n_workers,
      .argv = o->argv,
      .extra_env = o->extra_env,
      .job_id = job->result->job_id,
      .secret_path = job->secret.path,
      .store_port = gmi_store_server_port(job->store),
      .master_port = job->master_port,
      .signals = &job->signals,
      .descriptors = job->descriptors,
  };
  for (int rank = 0; rank < o->n_workers; rank++) {
    bool is_bound = o->bind != LAUNCH_BIND_NONE && job->n_cores > 0;
    int core = is_bound ? job->cores[rank % job->n_cores] : -1;
    struct launch_worker worker;
    launch_signals_hold(&job->signals);
    gm_status status = launch_worker_start(&spawn, rank, core, &worker,
                                           &job->result->exit_status, error);
    launch_signals_resume(&job->signals);
    if (status != GM_OK)
      return status;
    job->result->ranks[rank] =
        (struct launch_rank){.pid = worker.pid, .was_started = true};
    job->n_alive++;
    launch_guardian_add(&job->guardian, worker.pid);
    launch_deaths_watch(&job->deaths, worker.pid);
    launch_relay_attach(job->relay, rank, LAUNCH_STDOUT, worker.stdout_fd);
    launch_relay_attach(job->relay, rank, LAUNCH_STDERR, worker.stderr_fd);
    if (!o->hides_pids)
      launch_relay_say(job->relay, "rank %d pid %d", rank, (int)worker.pid);
    if (o->is_verbose && core >= 0)
      launch_job_say(job, "rank %d is bound to core %d", rank, core);
  }
  return GM_OK;
}

void launch_job_say_where(struct launch_job *job) {
  say_if_few_cores(job);
  if (!job->options->is_verbose)
    return;
  launch_job_say(
      job, "job %s, store at 127.0.0.1:%d, MASTER_PORT %d, guardian pid %d",
      job->result->job_id, gmi_store_server_port(job->store), job->master_port,
      (int)job->guardian.pid);
}

void launch_job_release(struct launch_job *job) {
  launch_guardian_dismiss(&job->guardian);
  if (job->is_in_charge)
    prctl(PR_SET_CHILD_SUBREAPER, job->was_subreaper);
  gmi_store_server_destroy(job->store);
  launch_secret_fini(&job->secret);
  if (job->master_fd >= 0)
    close(job->master_fd);
  launch_signals_release(&job->signals);
  launch_deaths_fini(&job->deaths);
  launch_relay_destroy(job->relay);
  gmi_poller_fini(&job->poller);
  gmi_free(job->cores);
  setrlimit(RLIMIT_NOFILE, &job->descriptors);
}
