/* cmd_report.c - `gradmesh report`: one HTML file from what other commands have recorded. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/find_program.h"
#include "cli/output.h"
#include "report/movie.h"
#include "report/page.h"
#include "report/record.h"

static const char summary[] =
    "Makes one HTML file from records and traces: what was measured, what it means, in charts and in words, and\n"
    "a recorded all-reduce as an animation. It opens in any browser, from disk, without a network.\n";

static const char notes[] =
    "RUN is a file that a command has recorded, or a directory of such files; which kind it is, is seen from what is\n"
    "in it. Without RUN: the directory results. Known are:\n"
    "\n"
    "  training log            gradmesh train --log FILE\n"
    "  scaling study           gradmesh scaling\n"
    "  plan                    gradmesh plan\n"
    "  trace                   --trace FILE of train and bench\n"
    "  benchmark, its limits   gradmesh bench all_reduce --json=FILE, gradmesh bench limits --json=FILE\n"
    "  benchmark beside peers  make bench-peers\n"
    "\n"
    "--movie and --svg open the page in Chromium (Debian: apt-get install chromium), --movie needs ffmpeg as well.\n"
    "\n"
    "exit status: 0 written; 1 it could not be done; 2 wrong usage, or a RUN is no record.\n"
    "\n"
    "examples:\n"
    "  gradmesh report\n"
    "  gradmesh report runs/a.jsonl bench/results -o a.html\n"
    "  gradmesh report ring.trace.json naive.trace.json --movie ring.mp4 --svg pictures\n";

/* What is wanted besides the page; NULL: not. */
struct pictures {
    const char *movie_path, *svg_directory, *browser;
    bool        is_dark;
    int64_t     width, frames_per_s, seconds;
};

/* The page is always made; where it is not wanted, only as the stage of the pictures, in a folder that is removed. */
struct output {
    char            page_path[PATH_MAX];
    bool            is_page_wanted, is_page_named;
    char            stage_folder[64];
    struct pictures pictures;
};

struct report {
    struct gmr_record *records;
    size_t             n_records;
    FILE              *text;
};

static void free_report(struct report *report)
{
    for (size_t i = 0; i < report->n_records; i++) gmr_record_fini(&report->records[i]);
    free(report->records);
}

static gm_status add_file(struct report *report, const char *path, gm_error *error)
{
    struct gmr_record  record;
    struct gmr_record *more = realloc(report->records, (report->n_records + 1) * sizeof *more);
    if (more == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for %s", path);
    report->records = more;
    gm_status status = gmr_record_read(&record, path, error);
    if (status != GM_OK) return status;
    report->records[report->n_records++] = record;
    fprintf(report->text, "  %-32s %s, %zu %s%s\n", path, gmr_kind_name(record.kind), record.n_records,
            record.kind == GMR_TRACE ? "events" : "records", record.is_cut ? "; its last line is not whole yet" : "");
    return GM_OK;
}

/* ---- directories ------------------------------------------------------------------------------- */

static int may_be_record(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".jsonl") == 0);
}

/* Other files may stand there too: what is no record is left out, with a word. */
static gm_status add_directory(struct report *report, const char *path, gm_error *error)
{
    struct dirent **entries;
    int             n = scandir(path, &entries, may_be_record, alphasort);
    if (n < 0) return gmi_error_set_errno(error, errno, "cannot read the directory %s", path);
    for (int i = 0; i < n; i++) {
        char     file[PATH_MAX];
        gm_error why;
        gmi_error_clear(&why);
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (add_file(report, file, &why) != GM_OK) fprintf(report->text, "  left out: %s\n", why.text);
        free(entries[i]);
    }
    free(entries);
    return GM_OK;
}

static bool is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static gm_status add_run(struct report *report, const char *path, gm_error *error)
{
    return is_directory(path) ? add_directory(report, path, error) : add_file(report, path, error);
}

/* ---- what it says ------------------------------------------------------------------------------ */

static bool has_kind(const struct report *report, enum gmr_kind kind)
{
    for (size_t i = 0; i < report->n_records; i++)
        if (report->records[i].kind == kind) return true;
    return false;
}

static void print_missing(const struct report *report)
{
    bool is_first = true;
    for (int kind = 0; kind < GMR_N_KINDS; kind++) {
        if (kind == GMR_PEERS || has_kind(report, kind)) continue;
        if (is_first) fprintf(report->text, "not in it, for lack of records:\n");
        fprintf(report->text, "  %-22s %s\n", gmr_kind_name(kind), gmr_kind_source(kind));
        is_first = false;
    }
}

static void add_path(cJSON *object, const char *key, const char *path)
{
    if (path != NULL) cJSON_AddStringToObject(object, key, path);
}

static cJSON *to_json(const struct report *report, const struct output *output, size_t page_bytes)
{
    cJSON *object = cJSON_CreateObject();
    add_path(object, "report", output->is_page_wanted ? output->page_path : NULL);
    cJSON_AddNumberToObject(object, "bytes", (double)page_bytes);
    add_path(object, "movie", output->pictures.movie_path);
    add_path(object, "svg", output->pictures.svg_directory);
    cJSON *files = cJSON_AddArrayToObject(object, "files");
    for (size_t i = 0; i < report->n_records; i++) {
        cJSON *file = cJSON_CreateObject();
        cJSON_AddStringToObject(file, "name", report->records[i].name);
        cJSON_AddStringToObject(file, "kind", gmr_kind_key(report->records[i].kind));
        cJSON_AddNumberToObject(file, "records", (double)report->records[i].n_records);
        cJSON_AddItemToArray(files, file);
    }
    return object;
}

static gm_status write_page(struct report *report, const char *folder, const char *path, size_t *page_bytes,
                            gm_error *error)
{
    char  *page = NULL;
    cJSON *data = gmr_page_data(report->records, report->n_records);
    if (data == NULL) return gmi_error_set(error, GM_ERR_NOMEM, "no memory for the page");
    gm_status status = gmr_page_make(folder, data, &page, page_bytes, error);
    cJSON_Delete(data);
    if (status == GM_OK) status = gmr_write_file(path, page, *page_bytes, error);
    free(page);
    return status;
}

/* ---- pictures ---------------------------------------------------------------------------------- */

static gm_status make_movie(struct gmr_browser *browser, const struct pictures *wanted, const char *page, FILE *text,
                            gm_error *error)
{
    struct gmr_movie movie = { .path = wanted->movie_path, .width = (int)wanted->width,
                               .frames_per_s = (int)wanted->frames_per_s, .play_s = (double)wanted->seconds,
                               .is_dark = wanted->is_dark };
    int              n_frames = 0;
    gm_status        status = gmr_movie_make(browser, page, &movie, &n_frames, error);
    if (status == GM_OK) fprintf(text, "movie: %s, %d frames\n", wanted->movie_path, n_frames);
    return status;
}

static gm_status make_pictures(const struct pictures *wanted, const char *page, FILE *text, gm_error *error)
{
    static const char *const ffmpeg[] = { "ffmpeg", NULL };
    const char              *program = wanted->browser != NULL ? wanted->browser : cli_find_browser();
    struct gmr_browser      *browser;
    if (wanted->movie_path == NULL && wanted->svg_directory == NULL) return GM_OK;
    if (program == NULL)
        return gmi_error_set(error, GM_ERR_STATE, "--movie and --svg need Chromium, and there is none (Debian: apt-get "
                                                  "install chromium)");
    if (wanted->movie_path != NULL && cli_find_program(ffmpeg) == NULL)
        return gmi_error_set(error, GM_ERR_STATE, "--movie needs ffmpeg, and there is none (Debian: apt-get install ffmpeg)");
    gm_status status = gmr_browser_start(&browser, program, error);
    if (status != GM_OK) return status;
    int n_files = 0;
    if (wanted->svg_directory != NULL) {
        status = gmr_svg_write(browser, page, wanted->svg_directory, wanted->is_dark, &n_files, error);
        if (status == GM_OK) fprintf(text, "pictures: %d in %s\n", n_files, wanted->svg_directory);
    }
    if (status == GM_OK && wanted->movie_path != NULL) status = make_movie(browser, wanted, page, text, error);
    gmr_browser_stop(browser);
    return status;
}

/* ---- where it goes ------------------------------------------------------------------------------ */

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* The page of an earlier report may be replaced unasked; any other file of that name may not. */
static bool is_page_of_ours(const char *path)
{
    char  head[4096] = "";
    FILE *file = fopen(path, "re");
    if (file == NULL) return errno == ENOENT;
    bool is_read = fread(head, 1, sizeof head - 1, file) > 0;
    fclose(file);
    return is_read && strstr(head, "<title>gradmesh report</title>") != NULL;
}

static gm_status check_output(const struct output *output, const struct cli_parsed *parsed, gm_error *error)
{
    const char *paths[] = { output->is_page_named ? output->page_path : NULL, output->pictures.movie_path };
    for (int i = 0; i < parsed->n_operands; i++) {
        for (int k = 0; k < 2; k++) {
            if (paths[k] != NULL && is_same_file(parsed->operands[i], paths[k]))
                return gmi_error_set(error, GM_ERR_ARG, "%s is to be read, so it cannot be written too", paths[k]);
        }
    }
    if (paths[0] != NULL && paths[1] != NULL && strcmp(paths[0], paths[1]) == 0)
        return gmi_error_set(error, GM_ERR_ARG, "%s cannot be the page and the film", paths[0]);
    if (output->is_page_named || !output->is_page_wanted || is_page_of_ours(output->page_path)) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "%s is there and is no page of gradmesh report: name the page by -o FILE",
                         output->page_path);
}

/* `out`: what -o says. Without it the page is wanted if nothing else is. */
static gm_status place_page(struct output *output, const char *out, const char *results, gm_error *error)
{
    const struct pictures *pictures = &output->pictures;
    size_t                 room = sizeof output->page_path;
    int                    length;
    output->is_page_named = out != NULL;
    output->is_page_wanted = out != NULL || (pictures->movie_path == NULL && pictures->svg_directory == NULL);
    if (!output->is_page_wanted) {
        snprintf(output->stage_folder, sizeof output->stage_folder, "/tmp/gradmesh-report-XXXXXX");
        if (mkdtemp(output->stage_folder) == NULL)
            return gmi_error_set_errno(error, errno, "cannot make a folder in /tmp for the page that the pictures are of");
    }
    if (out != NULL) length = snprintf(output->page_path, room, "%s", out);
    else length = snprintf(output->page_path, room, "%s/report.html", output->is_page_wanted ? results : output->stage_folder);
    if (length >= 0 && (size_t)length < room) return GM_OK;
    return gmi_error_set(error, GM_ERR_ARG, "the file name is too long");
}

static void remove_stage(const struct output *output)
{
    if (output->is_page_wanted || output->stage_folder[0] == '\0') return;
    unlink(output->page_path);
    rmdir(output->stage_folder);
}

/* ---- the command ------------------------------------------------------------------------------- */

static int fail(const gm_error *error, int exit_status)
{
    fprintf(stderr, "gradmesh report: %s\n", error->text);
    return exit_status;
}

static int no_records(const char *results)
{
    fprintf(stderr,
            "gradmesh report: there is nothing to report in %s yet: make run, gradmesh scaling and gradmesh plan "
            "record there; or name files\n",
            results);
    return CLI_EXIT_USAGE;
}

static int write_report(struct report *report, const struct cli_parsed *parsed, const char *folder,
                        const struct output *output)
{
    gm_error error;
    size_t   page_bytes = 0;
    gmi_error_clear(&error);
    if (output->is_page_wanted) print_missing(report);
    if (write_page(report, folder, output->page_path, &page_bytes, &error) != GM_OK) return fail(&error, CLI_EXIT_NO);
    if (output->is_page_wanted)
        fprintf(report->text, "report: %s (%.1f MB; opens in a browser, needs no network)\n", output->page_path,
                (double)page_bytes / 1e6);
    fflush(report->text);
    if (make_pictures(&output->pictures, output->page_path, report->text, &error) != GM_OK) return fail(&error, CLI_EXIT_NO);
    cJSON *object = parsed->wants_json ? to_json(report, output, page_bytes) : NULL;
    bool   is_written = cli_write_json(parsed, "report", object);
    cJSON_Delete(object);
    return is_written ? CLI_EXIT_OK : CLI_EXIT_NO;
}

static int collect(struct report *report, const struct cli_parsed *parsed, const char *results)
{
    gm_error  error;
    gm_status status = GM_OK;
    gmi_error_clear(&error);
    for (int i = 0; i < parsed->n_operands && status == GM_OK; i++) status = add_run(report, parsed->operands[i], &error);
    if (parsed->n_operands == 0 && is_directory(results)) status = add_directory(report, results, &error);
    if (status != GM_OK) return fail(&error, CLI_EXIT_USAGE);
    return report->n_records > 0 ? CLI_EXIT_OK : no_records(parsed->n_operands > 0 ? parsed->operands[0] : results);
}

int cli_cmd_report(int argc, char **argv)
{
    const char             *out = NULL, *results = NULL, *share = NULL;
    struct output           output = { .stage_folder = "" };
    struct pictures        *pictures = &output.pictures;
    const struct cli_option options[] = {
        { .name = "out", .letter = 'o', .kind = CLI_TEXT, .text = &out, .value_name = "FILE",
          .help = "the page (default: report.html in the results directory; with --movie or --svg none)" },
        { .name = "results", .kind = CLI_TEXT, .text = &results, .value_name = "DIR", .default_text = "results",
          .help = "where records are, and the page goes" },
        { .name = "movie", .kind = CLI_TEXT, .text = &pictures->movie_path, .value_name = "FILE",
          .help = "the recorded all-reduce as a film: .mp4, .gif or .webm" },
        { .name = "width", .kind = CLI_INT, .integer = &pictures->width, .value_name = "PIXELS", .default_text = "1120",
          .min = 320, .max = 3840, .help = "of the film" },
        { .name = "fps", .kind = CLI_INT, .integer = &pictures->frames_per_s, .value_name = "N", .default_text = "20",
          .min = 1, .max = 60, .help = "frames of the film in a second" },
        { .name = "seconds", .kind = CLI_INT, .integer = &pictures->seconds, .value_name = "N", .default_text = "14",
          .min = 1, .max = 600, .help = "how long the all-reduce takes in the film; its end stays for two more" },
        { .name = "svg", .kind = CLI_TEXT, .text = &pictures->svg_directory, .value_name = "DIR",
          .help = "every chart as an SVG file in this directory" },
        { .name = "dark", .kind = CLI_FLAG, .flag = &pictures->is_dark, .help = "film and SVG in dark colours" },
        { .name = "browser", .kind = CLI_TEXT, .text = &pictures->browser, .value_name = "PROGRAM",
          .help = "what draws film and SVG (default: the Chromium in PATH)" },
        { .name = "share", .kind = CLI_TEXT, .text = &share, .value_name = "DIR",
          .help = "where the page's parts are (default: share/gradmesh beside the program)" },
    };
    const struct cli_command command = { .name = "report", .usage = "[RUN...] [options]", .summary = summary,
                                         .notes = notes, .operands = CLI_OPERANDS_ANYWHERE, .options = options,
                                         .n_options = sizeof options / sizeof options[0] };
    struct cli_parsed parsed;
    gm_error          error;
    int               exit_status;
    if (!cli_parse(&command, argc, argv, &parsed, &exit_status)) return exit_status;
    gmi_error_clear(&error);
    if (pictures->movie_path != NULL && !gmr_movie_knows(pictures->movie_path))
        return cli_usage_error(&command, "a film ends in .mp4, .gif or .webm, not '%s'", pictures->movie_path);

    char          folder[PATH_MAX];
    struct report report = { .text = cli_text(&parsed) };
    if (gmr_page_find_parts(share, folder, sizeof folder, &error) != GM_OK) return fail(&error, CLI_EXIT_NO);
    if (place_page(&output, out, results, &error) != GM_OK || check_output(&output, &parsed, &error) != GM_OK)
        exit_status = fail(&error, CLI_EXIT_USAGE);
    else exit_status = collect(&report, &parsed, results);
    if (exit_status == CLI_EXIT_OK) exit_status = write_report(&report, &parsed, folder, &output);
    remove_stage(&output);
    free_report(&report);
    return exit_status;
}
