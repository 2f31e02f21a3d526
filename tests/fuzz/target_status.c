/* What gradmesh status hears: one byte that chooses, then
 *     0   a line of /proc/net/unix
 *     1   answers of ranks, each ended by a zero byte; those from the middle on are asked later */
#include <string.h>

#include "cli/jobs.h"
#include "tests/fuzz/targets.h"

enum { ANSWER_BYTES = 2048 };

static void check_text(const char *text, size_t text_bytes)
{
    fuzz_check(memchr(text, '\0', text_bytes) != NULL);
    for (; *text != '\0'; text++) fuzz_check(*text >= ' ' && *text <= '~');
}

static void check_jobs(const struct cli_jobs *jobs)
{
    fuzz_check(jobs->n_jobs <= CLI_JOBS_MAX);
    for (int i = 0; i < jobs->n_jobs; i++) {
        const struct cli_job *job = &jobs->jobs[i];
        fuzz_check(job->straggler >= -1 && job->straggler < job->n_ranks);
        check_text(job->id, sizeof job->id);
        check_text(job->group, sizeof job->group);
        check_text(job->failure, sizeof job->failure);
        check_text(job->missing, sizeof job->missing);
        for (int k = 0; k < job->n_ranks; k++) {
            const struct cli_job_rank *r = &job->ranks[k];
            fuzz_check(cli_rank_state_name(r->state) != NULL && r->waiting_share <= 1);
            check_text(r->call, sizeof r->call);
            check_text(r->says, sizeof r->says);
            check_text(r->address, sizeof r->address);
        }
    }
}

static void read_socket(struct cli_jobs *jobs, struct fuzz_input *in)
{
    char                  line[512];
    struct cli_job_socket socket;
    if (!fuzz_line(in, line, sizeof line) || !cli_job_socket_read(&socket, line)) return;
    fuzz_check(strlen(socket.name) < sizeof socket.name && strstr(socket.name, socket.job_id) != NULL);
    cli_jobs_take_silence(jobs, &socket);
}

/* The next answer, zero-terminated. */
static void next_answer(struct fuzz_input *in, char text[ANSWER_BYTES])
{
    size_t used = 0;
    for (char c; in->left_bytes > 0 && (c = (char)fuzz_u8(in)) != '\0';) {
        if (used + 1 < ANSWER_BYTES) text[used++] = c;
    }
    text[used] = '\0';
}

void fuzz_status(const uint8_t *bytes, size_t n_bytes)
{
    static struct cli_jobs now, before;
    struct fuzz_input      in = { bytes, n_bytes };
    char                   text[ANSWER_BYTES];
    uint8_t                choice = fuzz_u8(&in);
    size_t                 half = in.left_bytes / 2;
    now = before = (struct cli_jobs){ 0 };
    while (in.left_bytes > 0) {
        struct cli_jobs *jobs = in.left_bytes > half ? &before : &now;
        if (choice % 2 == 0) {
            read_socket(jobs, &in);
        } else {
            next_answer(&in, text);
            cli_jobs_take(jobs, text);
        }
    }
    cli_jobs_judge(&before);
    cli_jobs_judge(&now);
    cli_jobs_compare(&now, &before);
    check_jobs(&before);
    check_jobs(&now);
    cli_jobs_fini(&before);
    cli_jobs_fini(&now);
}

void fuzz_status_seed(fuzz_keep_fn keep, void *user)
{
#define RANK(k, doing, peer, spent)                                                                                       \
    "gradmesh-status 1\njob j\ngroup world\nself " k " of 2 middle 0 ready 1\nspent now_ns " spent                        \
    "\nrank " k " pid 7 doing " doing " entered 5 done 4 for_ms 900 peer " peer " silent_ms 0 left 0 address 127.0.0.1:5\n" \
    "call all_reduce #5\nsays it waits\n"
#define SEED(text) { text, sizeof(text) - 1 }
    static const struct {
        const char *bytes;
        size_t      n_bytes;
    } seeds[] = {
        SEED("0" "ffff8880: 00000002 00000000 00010000 0001 01 4242 @gradmesh-job-17-1-0000002a-job\n"
             "ffff8881: 00000002 00000000 00010000 0001 01 4243 @gradmesh-job-1-0-0000002a-job\n"),
        SEED("0" "ffff8880: 00000002 00000000 00000000 0001 01 4242 /run/x\n"),
        SEED("1" RANK("0", "2", "1", "1000 calls 3 waiting_ns 10") "\0" RANK("1", "1", "-1", "1000 calls 3 waiting_ns 900") "\0"
             RANK("0", "2", "1", "9000 calls 5 waiting_ns 10") "\0" RANK("1", "1", "-1", "9000 calls 5 waiting_ns 8000")),
        SEED("1" RANK("0", "2", "1", "1 calls 3 waiting_ns 10") "\0" RANK("1", "2", "0", "9223372036854775807 calls 3 waiting_ns -9")),
        SEED("1" "job \xff\nself 0 of 2 middle 0 ready 0\nmissing 1\nfailure rank 1\tis gone\n\0gradmesh-status 1\nself 0 of 99999999999 middle 0 ready 1"),
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) keep(user, (const uint8_t *)seeds[i].bytes, seeds[i].n_bytes);
}
