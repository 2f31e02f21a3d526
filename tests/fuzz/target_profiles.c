/* What is known of a machine: one byte that chooses, then
 *     0   a machine's profile (JSON), by which then is predicted
 *     1   what "auto" chooses by, lines KIND.CONSTANT=NUMBER and KIND.SITE.COLLECTIVE=ALGORITHM:BYTES,... */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "coll/profile.h"
#include "plan/machine.h"
#include "plan/model.h"
#include "tests/fuzz/targets.h"

enum { MAX_WORKERS = 6 };

static void check_prediction(const struct plan_machine *machine, const struct plan_job *job, int workers)
{
    struct plan_prediction p = plan_predict(machine, job, workers);
    fuzz_check(p.workers == workers && p.algorithm != NULL && !isnan(p.step_ms) && !isnan(p.speedup));
}

static void load_machine(struct fuzz_input *in)
{
    static struct plan_machine machine;
    struct plan_job            job = { .batch = 64, .accumulate = 1, .threads = 1, .transport = "tcp", .wire = "f32", .overlaps = true };
    char                       path[FUZZ_PATH_BYTES];
    gm_error                   error;
    gmi_error_clear(&error);
    fuzz_file(0, in->bytes, in->left_bytes, path);
    if (plan_profile_load(&machine, path, &error) != GM_OK) {
        fuzz_check(error.status == GM_ERR_ARG && error.text[0] != '\0');
        return;
    }
    fuzz_check(machine.n_crews <= PLAN_MAX_CREWS && (machine.n_crews > 0 || machine.flops > 0));
    job.layers = machine.layers;
    if (machine.n_crews == 0) fuzz_check(gmt_layers_parse(&job.layers, "784,16,10", NULL) == GM_OK);
    for (int workers = 1; workers <= MAX_WORKERS; workers++) check_prediction(&machine, &job, workers);
    job.is_network = true;
    job.link = machine.has_link ? machine.link : (struct plan_link){ 30, 1e8 };
    check_prediction(&machine, &job, 2);
    fuzz_check(plan_best_world(&machine, &job, MAX_WORKERS) >= 1);
    (void)plan_break_even_batch(&machine, &job, 2);
}

static void read_choices(struct fuzz_input *in)
{
    static struct gmi_profile profile;
    char                      text[4096];
    const char               *why = NULL;
    int                       n_lines = 1;
    size_t                    n;
    const uint8_t            *at = fuzz_take(in, sizeof text - 1, &n);
    memcpy(text, at, n);
    text[n] = '\0';
    for (const char *c = text; *c != '\0'; c++) n_lines += *c == '\n';
    gmi_profile_builtin(&profile);
    int bad_line = gmi_profile_read(&profile, text, &why);
    fuzz_check(bad_line >= 0 && bad_line <= n_lines && (bad_line == 0 || why != NULL));
    fuzz_check(profile.n_choices <= GMI_MAX_CHOICES);
    for (int ranks = 2; ranks <= MAX_WORKERS; ranks++) {
        struct gmi_site site = { .kind = GMI_KIND_LOOPBACK, .n_ranks = (uint32_t)ranks, .n_cores = 2, .n_hosts = 1 };
        for (int which = 0; which < GM_COLLECTIVE_END; which++) (void)gmi_profile_choice(&profile, site, which, 65536);
    }
}

void fuzz_profiles(const uint8_t *bytes, size_t n_bytes)
{
    struct fuzz_input in = { bytes, n_bytes };
    if (fuzz_u8(&in) % 2 == 0) {
        load_machine(&in);
    } else {
        read_choices(&in);
    }
}

void fuzz_profiles_seed(fuzz_keep_fn keep, void *user)
{
    static const char *const seeds[] = {
        "0{\"format\":\"gradmesh machine profile 1\",\"cores\":2,\"layers\":\"784,16,10\",\"flops\":0,\"memory_Bps\":1e10,"
        "\"reduce_Bps\":1e9,\"codec_Bps\":1e9,\"latency_us\":25,\"bandwidth_Bps\":117e6,\"crews\":[{\"workers\":1,\"threads\":1,"
        "\"rows\":[8,64],\"step_ms\":[0.5,2],\"mean_ms\":[0.5,1.9],\"update_ms\":0.1,\"exchanges\":[]},{\"workers\":2,\"threads\":1,"
        "\"rows\":[8],\"step_ms\":[0.6],\"mean_ms\":[0.6],\"update_ms\":0,\"exchanges\":[{\"transport\":\"tcp\",\"wire\":\"f32\","
        "\"bytes\":[4,4096],\"ms\":[0.1,0.2],\"cpu_ms\":[0,0.1]}]}]}",
        "0{\"format\":\"gradmesh machine profile 1\",\"cores\":1,\"flops\":5e9,\"memory_Bps\":1,\"reduce_Bps\":1,\"codec_Bps\":1,\"crews\":[]}",
        "0{\"format\":\"gradmesh machine profile 2\"}",
        "0[",
        "1# a slow network\n\nnetwork.byte_ps=8000\nmemory.turn_ns=0 \r\nloopback.cache_bytes=4294967295\nplan.flops=1e9\n",
        "1network.bytes=1\n",
        "1loopback.4on2.all_reduce=exchange:8192,doubling:32768,ring\nnetwork.6on2at3.broadcast=tree\n",
        "1loopback.keep_ps=4294967296",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) keep(user, (const uint8_t *)seeds[i], strlen(seeds[i]));
}
