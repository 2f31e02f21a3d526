#include "coll/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coll/algo.h"

static const char *const constants[] = { "turn_ns", "message_ns", "byte_ps", "reduce_ps", "keep_ps", "cache_bytes" };

/* Written by `make tune` (docs/tuning.md), a string for each line. */
static const char builtin_lines[] =
#include "coll/builtin_profile.inc"
    ;

enum { MAX_STRETCHES = 16 };

static const char BAD_LINE[] = "it must be KIND.CONSTANT=NUMBER, as in network.byte_ps=8000, or begin with '#'";
static const char BAD_CHOICE[] = "a choice is KIND.RANKSonCORES.COLLECTIVE=ALGORITHM:BYTES,...,ALGORITHM, as in "
                                 "loopback.4on2.all_reduce=exchange:8192,ring";
static const char BAD_COLLECTIVE[] = "there is no such collective to choose an algorithm for";
static const char BAD_ALGORITHM[] = "this collective has no such algorithm";
static const char BAD_SIZES[] = "the sizes must rise from one algorithm to the next, and the last one has none";
static const char TOO_MANY[] = "the profile holds too many choices";

const char *gmi_link_constant_name(int index)
{
    return index < (int)(sizeof constants / sizeof constants[0]) ? constants[index] : NULL;
}

/* ---- sites -------------------------------------------------------------------------------------- */

const char *gmi_site_text(struct gmi_site p, char text[GMI_SITE_TEXT_BYTES])
{
    int n = snprintf(text, GMI_SITE_TEXT_BYTES, "%s.%don%d", gmi_link_kind_name(p.kind), p.n_ranks, p.n_cores);
    if (p.n_hosts > 1) snprintf(text + n, (size_t)(GMI_SITE_TEXT_BYTES - n), "at%d", p.n_hosts);
    return text;
}

/* The kind whose name and a dot `text` begins with, and *rest behind them; GMI_KINDS: none. */
static int read_kind(const char *text, const char **rest)
{
    for (int kind = 0; kind < GMI_KINDS; kind++) {
        const char *name = gmi_link_kind_name(kind);
        size_t      n = strlen(name);
        if (strncmp(text, name, n) != 0 || text[n] != '.') continue;
        *rest = text + n + 1;
        return kind;
    }
    return GMI_KINDS;
}

static bool read_count(const char **text, const char *before, uint16_t *count)
{
    char  *end;
    size_t n = strlen(before);
    if (strncmp(*text, before, n) != 0 || (*text)[n] < '1' || (*text)[n] > '9') return false;
    unsigned long value = strtoul(*text + n, &end, 10);
    *text = end;
    *count = (uint16_t)value;
    return value <= UINT16_MAX;
}

bool gmi_site_read(struct gmi_site *site, const char *text, const char **end)
{
    int kind = read_kind(text, end);
    *site = (struct gmi_site){ .kind = (uint8_t)kind, .n_hosts = 1 };
    if (kind == GMI_KINDS || !read_count(end, "", &site->n_ranks) || !read_count(end, "on", &site->n_cores)) return false;
    return strncmp(*end, "at", 2) != 0 || read_count(end, "at", &site->n_hosts);
}

static bool is_same_site(struct gmi_site a, struct gmi_site b)
{
    return a.kind == b.kind && a.n_ranks == b.n_ranks && a.n_cores == b.n_cores && a.n_hosts == b.n_hosts;
}

/* ---- choices ------------------------------------------------------------------------------------- */

uint8_t gmi_profile_choice(const struct gmi_profile *profile, struct gmi_site site, int collective, uint64_t total_bytes)
{
    for (uint32_t i = 0; i < profile->n_choices; i++) {
        const struct gmi_choice *c = &profile->choices[i];
        if (c->collective == collective && total_bytes <= c->most_bytes && is_same_site(c->site, site)) return c->algorithm;
    }
    return 0;
}

static void drop_choices(struct gmi_profile *profile, bool (*is_one)(const struct gmi_choice *, const void *), const void *which)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < profile->n_choices; i++) {
        if (!is_one(&profile->choices[i], which)) profile->choices[n++] = profile->choices[i];
    }
    profile->n_choices = n;
}

static bool is_of_kind(const struct gmi_choice *choice, const void *kind) { return choice->site.kind == *(const int *)kind; }

static bool is_of_same(const struct gmi_choice *choice, const void *other)
{
    const struct gmi_choice *o = other;
    return choice->collective == o->collective && is_same_site(choice->site, o->site);
}

bool gmi_profile_set_choices(struct gmi_profile *profile, const struct gmi_choice *choices, size_t n_choices)
{
    if (n_choices == 0) return true;
    drop_choices(profile, is_of_same, &choices[0]);
    if (profile->n_choices + n_choices > GMI_MAX_CHOICES) return false;
    memcpy(&profile->choices[profile->n_choices], choices, n_choices * sizeof *choices);
    profile->n_choices += (uint32_t)n_choices;
    return true;
}

const char *gmi_choices_text(const struct gmi_choice *choices, size_t n_choices, char text[GMI_CHOICES_TEXT_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n_choices && used < GMI_CHOICES_TEXT_BYTES; i++) {
        used += (size_t)snprintf(text + used, GMI_CHOICES_TEXT_BYTES - used, "%s%s", i > 0 ? "," : "",
                                 gmi_algo_name(choices[i].algorithm));
        if (choices[i].most_bytes == UINT64_MAX || used >= GMI_CHOICES_TEXT_BYTES) continue;
        used += (size_t)snprintf(text + used, GMI_CHOICES_TEXT_BYTES - used, ":%llu", (unsigned long long)choices[i].most_bytes);
    }
    return text;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    char              *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || end[strspn(end, " \t\r")] != '\0' || n > most) return false;
    *number = n;
    return true;
}

static const char *read_constant(struct gmi_link_costs *costs, const char *name, const char *value)
{
    uint64_t number;
    for (int i = 0; gmi_link_constant_name(i) != NULL; i++) {
        if (strcmp(name, gmi_link_constant_name(i)) != 0) continue;
        if (!read_number(value, UINT32_MAX, &number)) return BAD_LINE;
        *gmi_link_constant(costs, i) = (uint32_t)number;
        return NULL;
    }
    return BAD_LINE;
}

static uint8_t algorithm_named(const char *name, int collective)
{
    const struct gmi_algo *row;
    for (size_t i = 0; (row = gmi_algo_row(i)) != NULL; i++) {
        if ((int)row->collective == collective && strcmp(row->name, name) == 0) return row->id;
    }
    return 0;
}

/* One "ALGORITHM:BYTES", or "ALGORITHM" alone at the end. */
static const char *read_choice(struct gmi_choice *choice, char *text, bool is_last, uint64_t after_bytes)
{
    char *size = strchr(text, ':');
    if (size != NULL) *size++ = '\0';
    choice->most_bytes = UINT64_MAX;
    choice->algorithm = algorithm_named(text, choice->collective);
    if (choice->algorithm == 0) return BAD_ALGORITHM;
    if (is_last != (size == NULL)) return BAD_SIZES;
    return is_last || (read_number(size, UINT64_MAX - 1, &choice->most_bytes) && choice->most_bytes > after_bytes) ? NULL : BAD_SIZES;
}

static const char *read_choices(struct gmi_profile *profile, const char *key, char *value)
{
    struct gmi_choice choices[MAX_STRETCHES], c = { .collective = 0 };
    const char       *name, *why = NULL;
    size_t            n = 0;
    if (!gmi_site_read(&c.site, key, &name) || *name++ != '.') return BAD_CHOICE;
    while (c.collective < GM_SEND && strcmp(gm_collective_name(c.collective), name) != 0) c.collective++;
    if (c.collective == GM_SEND) return BAD_COLLECTIVE;
    value[strcspn(value, " \t\r")] = '\0';
    for (char *text; why == NULL && (text = strsep(&value, ",")) != NULL; n++) {
        if (n == MAX_STRETCHES) return BAD_SIZES;
        choices[n] = c;
        why = read_choice(&choices[n], text, value == NULL, n > 0 ? choices[n - 1].most_bytes : 0);
    }
    if (why == NULL && !gmi_profile_set_choices(profile, choices, n)) why = TOO_MANY;
    return why;
}

/* NULL: right. */
static const char *read_line(struct gmi_profile *profile, char *line, bool has_kind[GMI_KINDS])
{
    const char *rest;
    char       *value = strchr(line, '=');
    if (line[0] == '#' || line[strspn(line, " \t\r")] == '\0') return NULL;
    if (value == NULL) return BAD_LINE;
    *value++ = '\0';
    int kind = read_kind(line, &rest);
    if (kind == GMI_KINDS) return NULL;
    if (!has_kind[kind]) drop_choices(profile, is_of_kind, &kind);
    has_kind[kind] = true;
    if (rest[0] >= '0' && rest[0] <= '9') return read_choices(profile, line, value);
    return read_constant(&profile->kinds[kind], rest, value);
}

int gmi_profile_read(struct gmi_profile *profile, char *text, const char **why)
{
    bool  has_kind[GMI_KINDS] = { false };
    char *line;
    for (int number = 1; (line = strsep(&text, "\n")) != NULL; number++) {
        *why = read_line(profile, line, has_kind);
        if (*why != NULL) return number;
    }
    return 0;
}

void gmi_profile_builtin(struct gmi_profile *profile)
{
    char        text[sizeof builtin_lines];
    const char *why;
    memcpy(text, builtin_lines, sizeof text);
    *profile = (struct gmi_profile){ .n_choices = 0 };
    GMI_CHECK(gmi_profile_read(profile, text, &why) == 0);
}
