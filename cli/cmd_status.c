/* cmd_status.c - `gradmesh status`: what the ranks of a running job are doing, and who holds up the others. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/process.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/jobs.h"
#include "cli/output.h"

enum {
    ASK_MS = 1000,
    WATCH_MS = 500, /* between two questions, for how much of the time ranks wait */
};

static const char summary[] = "Asks the jobs of this user that run on this host: what each rank is doing, for whom it waits and since\n"
                              "when, and who holds up the others. It works while a job hangs, and when ranks are stopped.\n"
                              "JOB is the id of one job (gradmesh run --verbose prints it); without it all are asked.\n";

static const char notes[] = "exit status: 0 when somebody answered, 1 when there is no such job.\n";

/* ---- as text ------------------------------------------------------------------------------------ */

static const char *format_since(long long ms, char *text, size_t text_bytes)
{
    if (ms < 0) snprintf(text, text_bytes, "-");
    else if (ms < 10000) snprintf(text, text_bytes, "%.1f s", (double)ms / 1000);
    else if (ms < 600000) snprintf(text, text_bytes, "%lld s", ms / 1000);
    else snprintf(text, text_bytes, "%lld min", ms / 60000);
    return text;
}

static void print_rank(FILE *file, const struct cli_job_rank *r, int rank)
{
    char since[32], what[300] = "", peer[16] = "-";
    if (r->state == CLI_RANK_WAITING) snprintf(peer, sizeof peer, "%d", r->peer);
    if (r->state == CLI_RANK_WAITING) snprintf(what, sizeof what, "%s", r->call);
    if (r->state == CLI_RANK_IN_CALL) snprintf(what, sizeof what, "call #%llu", (unsigned long long)r->entered_seq);
    if (r->state == CLI_RANK_USER_CODE || r->state == CLI_RANK_LEFT)
        snprintf(what, sizeof what, "after call #%llu", (unsigned long long)r->done_seq);
    if (r->state == CLI_RANK_NO_ANSWER) snprintf(what, sizeof what, "its process is %s", gmi_process_state_name(r->process_state));
    fprintf(file, "  %4d %8ld  %-10s %9s  %8s  %s\n", rank, r->pid, cli_rank_state_name(r->state), peer,
            format_since(r->for_ms, since, sizeof since), what);
}

/* In a job that keeps to the pace of its slowest link, something is always under way over that one. */
static void print_busiest_link(FILE *file, const struct cli_links *links)
{
    if (links->busiest < 0) return;
    const struct cli_link *l = &links->all[links->busiest];
    fprintf(file, "  busiest link: rank %d to rank %d: something was under way %.0f %% of the time (the next one: %.0f %%), %.1f MB/s, "
            "%.1f %% of the packets sent again, an answer takes %.1f ms\n", l->from, l->to, 100 * l->busy_share,
            100 * links->next_share, l->MBps, 100 * l->resent_share, l->rtt_us / 1e3);
}

static void print_job(FILE *file, const struct cli_job *job)
{
    fprintf(file, "job %s, group %s, %d ranks%s\n", job->id[0] ? job->id : "(no id)", job->group, job->n_ranks,
            job->is_ready ? "" : ", starting up");
    if (job->missing[0]) fprintf(file, "  still missing: rank(s) %s\n", job->missing);
    if (job->failure[0]) fprintf(file, "  failed: %s\n", job->failure);
    fprintf(file, "  rank      pid  state      waits for     since  in\n");
    for (int k = 0; k < job->n_ranks; k++) print_rank(file, &job->ranks[k], k);
    print_busiest_link(file, &job->links);
    if (job->is_moving && job->straggler < 0)
        fprintf(file, "  it moves, and no rank keeps the others waiting much longer than it waits itself\n");
    if (job->straggler < 0) return;
    const struct cli_job_rank *r = &job->ranks[job->straggler];
    if (job->is_moving) {
        fprintf(file, "  rank %d is slow: over the last half second the others waited %.0f %% of the time, rank %d %.0f %%: %.2f ms a call\n",
                job->straggler, 100 * (r->waiting_share + job->straggler_share), job->straggler, 100 * r->waiting_share,
                job->straggler_ms);
        return;
    }
    if (r->state == CLI_RANK_NO_ANSWER) {
        fprintf(file, "  rank %d holds up the others: its process %ld is %s\n", job->straggler, r->pid,
                gmi_process_state_name(r->process_state));
    } else {
        fprintf(file, "  rank %d holds up the others: %s\n", job->straggler, r->says[0] ? r->says : "nothing is known of it");
    }
}

/* ---- as JSON ------------------------------------------------------------------------------------ */

static void add_ms(cJSON *object, const char *name, long long ms)
{
    if (ms < 0) cJSON_AddNullToObject(object, name);
    else cJSON_AddNumberToObject(object, name, (double)ms / 1000);
}

static cJSON *rank_to_json(const struct cli_job_rank *r, int rank)
{
    char   state[2] = { r->process_state, '\0' };
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "rank", rank);
    cJSON_AddNumberToObject(object, "pid", (double)r->pid);
    cJSON_AddStringToObject(object, "state", cli_rank_state_name(r->state));
    cJSON_AddNumberToObject(object, "call", (double)r->entered_seq);
    cJSON_AddNumberToObject(object, "done_calls", (double)r->done_seq);
    if (r->state == CLI_RANK_WAITING) cJSON_AddNumberToObject(object, "waits_for", r->peer);
    else cJSON_AddNullToObject(object, "waits_for");
    add_ms(object, "since_s", r->for_ms);
    add_ms(object, "silent_s", r->silent_ms);
    cJSON_AddStringToObject(object, "operation", r->call);
    cJSON_AddStringToObject(object, "text", r->says);
    if (r->waiting_share >= 0) cJSON_AddNumberToObject(object, "waiting_share", r->waiting_share);
    else cJSON_AddNullToObject(object, "waiting_share");
    if (state[0]) cJSON_AddStringToObject(object, "process_state", state);
    return object;
}

static cJSON *links_to_json(const struct cli_links *links)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < links->n; i++) {
        const struct cli_link *l = &links->all[i];
        cJSON *each = cJSON_CreateObject();
        cJSON_AddItemToArray(list, each);
        cJSON_AddNumberToObject(each, "from", l->from);
        cJSON_AddNumberToObject(each, "to", l->to);
        cJSON_AddNumberToObject(each, "sent_packets", (double)l->sent_packets);
        cJSON_AddNumberToObject(each, "resent_packets", (double)l->resent_packets);
        cJSON_AddNumberToObject(each, "rtt_us", l->rtt_us);
        if (l->busy_share < 0) continue;
        cJSON_AddNumberToObject(each, "busy_share", l->busy_share);
        cJSON_AddNumberToObject(each, "MBps", l->MBps);
    }
    return list;
}

static cJSON *to_json(const struct cli_jobs *jobs)
{
    cJSON *object = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(object, "jobs");
    for (int i = 0; i < jobs->n_jobs; i++) {
        const struct cli_job *job = &jobs->jobs[i];
        cJSON *each = cJSON_CreateObject();
        cJSON_AddItemToArray(list, each);
        cJSON_AddStringToObject(each, "job_id", job->id);
        cJSON_AddStringToObject(each, "group", job->group);
        cJSON_AddNumberToObject(each, "world_size", job->n_ranks);
        cJSON_AddBoolToObject(each, "ready", job->is_ready);
        if (job->failure[0]) cJSON_AddStringToObject(each, "failure", job->failure);
        if (job->missing[0]) cJSON_AddStringToObject(each, "missing", job->missing);
        if (job->straggler >= 0) cJSON_AddNumberToObject(each, "straggler", job->straggler);
        else cJSON_AddNullToObject(each, "straggler");
        cJSON_AddBoolToObject(each, "moving", job->is_moving);
        cJSON_AddNumberToObject(each, "straggler_share", job->straggler_share);
        cJSON_AddNumberToObject(each, "straggler_ms_per_call", job->straggler_ms);
        cJSON_AddItemToObject(each, "links", links_to_json(&job->links));
        if (job->links.busiest >= 0) cJSON_AddNumberToObject(each, "busiest_link", job->links.busiest);
        else cJSON_AddNullToObject(each, "busiest_link");
        cJSON *ranks = cJSON_AddArrayToObject(each, "ranks");
        for (int k = 0; k < job->n_ranks; k++) cJSON_AddItemToArray(ranks, rank_to_json(&job->ranks[k], k));
    }
    return object;
}

/* Asks twice, where there is somebody to ask. */
static bool ask(struct cli_jobs *jobs, const char *id)
{
    struct cli_jobs *before = gmi_alloc(1, sizeof *before);
    bool             is_known = before != NULL && cli_jobs_ask(before, id, ASK_MS);
    if (is_known && before->n_jobs > 0) {
        const struct timespec moment = { .tv_nsec = WATCH_MS * 1000000L };
        nanosleep(&moment, NULL);
    }
    is_known = is_known && cli_jobs_ask(jobs, id, ASK_MS);
    if (is_known && jobs->n_jobs == 0 && before->n_jobs > 0) { /* it has ended meanwhile: what it did then */
        struct cli_jobs *kept = before;
        cli_jobs_fini(jobs);
        *jobs = *kept;
        gmi_free(kept);
        return true;
    }
    if (is_known) cli_jobs_compare(jobs, before);
    if (before != NULL) cli_jobs_fini(before);
    gmi_free(before);
    return is_known;
}

int cli_cmd_status(int argc, char **argv)
{
    const struct cli_command command = {
        .name = "status", .usage = "[options] [JOB]", .summary = summary, .notes = notes, .operands = CLI_OPERANDS_ANYWHERE,
    };
    struct cli_parsed parsed;
    int               status;
    if (!cli_parse(&command, argc, argv, &parsed, &status)) return status;
    if (parsed.n_operands > 1) return cli_usage_error(&command, "one job at a time, or all");
    const char      *id = parsed.n_operands == 1 ? parsed.operands[0] : NULL;
    struct cli_jobs *jobs = gmi_alloc(1, sizeof *jobs);
    if (jobs == NULL || !ask(jobs, id)) {
        fprintf(stderr, "gradmesh status: cannot read /proc/net/unix, where the sockets of running jobs are listed\n");
        gmi_free(jobs);
        return CLI_EXIT_NO;
    }
    FILE *file = cli_text(&parsed);
    for (int i = 0; i < jobs->n_jobs; i++) print_job(file, &jobs->jobs[i]);
    if (jobs->n_jobs == 0) {
        fprintf(stderr, "gradmesh status: no job%s%s of this user runs here%s\n", id ? " " : "", id ? id : "",
                jobs->n_others ? "; there are jobs of others" : "");
    }
    status = jobs->n_jobs > 0 ? CLI_EXIT_OK : CLI_EXIT_NO;
    cJSON *object = to_json(jobs);
    if (!cli_write_json(&parsed, "status", object)) status = CLI_EXIT_NO;
    cJSON_Delete(object);
    cli_jobs_fini(jobs);
    gmi_free(jobs);
    return status;
}
