#include "base/error.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/support/test.h"

/* ---- status -------------------------------------------------------------------------------------- */

static void every_status_has_a_name_and_a_meaning(void **state)
{
    (void)state;
    for (int s = GM_OK; s <= GM_ERR_NOMEM; s++) {
        assert_true(strncmp(gm_status_name((gm_status)s), "GM_", 3) == 0);
        assert_true(strlen(gm_status_text((gm_status)s)) > 3);
        for (int other = 0; other < s; other++) {
            assert_string_not_equal(gm_status_name((gm_status)s), gm_status_name((gm_status)other));
        }
    }
    assert_string_equal(gm_status_name((gm_status)(GM_ERR_CORRUPT + 1)), "?");
    assert_string_equal(gm_status_text((gm_status)-1), "?");
    assert_string_equal(gm_status_name(GM_ERR_PEER_LOST), "GM_ERR_PEER_LOST");
    assert_string_equal(gm_version(), GM_VERSION_STRING);
}

/* ---- records ------------------------------------------------------------------------------------- */

static void the_first_cause_stays(void **state)
{
    (void)state;
    gm_error e;
    gmi_error_clear(&e);
    assert_status(e.status, GM_OK);
    assert_int_equal(e.rank, -1);
    assert_int_equal(e.culprit, -1);
    assert_int_equal(e.step, -1);
    assert_string_equal(e.text, "");
    assert_status(gmi_error_set(&e, GM_ERR_ARG, "the %s is %d", "count", 3), GM_ERR_ARG);
    assert_status(gmi_error_set(&e, GM_ERR_TIMEOUT, "later"), GM_ERR_TIMEOUT);
    assert_status(gmi_error_set_errno(&e, EPIPE, "later still"), GM_ERR_SYSTEM);
    assert_status(e.status, GM_ERR_ARG);
    assert_string_equal(e.text, "the count is 3");
    assert_int_equal(e.sys_errno, 0);
}

static void no_record_is_fine(void **state)
{
    (void)state;
    gmi_error_clear(NULL);
    assert_status(gmi_error_set(NULL, GM_ERR_ARG, "x"), GM_ERR_ARG);
    assert_status(gmi_error_set_errno(NULL, ENOENT, "x"), GM_ERR_SYSTEM);
    assert_status(gmi_error_set_errno(NULL, ENOMEM, "x"), GM_ERR_NOMEM);
}

static void a_refused_system_call_says_why(void **state)
{
    (void)state;
    gm_error e;
    gmi_error_clear(&e);
    assert_status(gmi_error_set_errno(&e, EADDRINUSE, "cannot listen on %s", "10.0.0.1:80"), GM_ERR_SYSTEM);
    assert_int_equal(e.sys_errno, EADDRINUSE);
    assert_string_equal(e.text, "cannot listen on 10.0.0.1:80: Address already in use");
}

static void long_sentences_are_cut_and_terminated(void **state)
{
    (void)state;
    gm_error e;
    char     text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gmi_error_clear(&e);
    gmi_error_set(&e, GM_ERR_ARG, "%s", text);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    gmi_error_clear(&e);
    gmi_error_set_errno(&e, EPIPE, "%s", text);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

/* ---- log ----------------------------------------------------------------------------------------- */

struct heard {
    int          n_lines;
    gm_log_level level;
    char         line[2048];
};

static void hear(void *user, gm_log_level level, const char *line)
{
    struct heard *h = user;
    h->n_lines++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void only_wanted_lines_are_logged(void **state)
{
    (void)state;
    struct heard   h = { 0 };
    struct gmi_log log = { .write = hear, .user = &h, .level = GM_LOG_WARN };
    gmi_log(&log, GM_LOG_INFO, "not this");
    gmi_log(&log, GM_LOG_DEBUG, "nor this");
    assert_int_equal(h.n_lines, 0);
    gmi_log(&log, GM_LOG_WARN, "rank %d", 3);
    assert_int_equal(h.n_lines, 1);
    assert_string_equal(h.line, "rank 3");
    gmi_log(&log, GM_LOG_ERROR, "%03000d", 1);
    assert_int_equal(h.n_lines, 2);
    assert_int_equal(h.level, GM_LOG_ERROR);
    assert_true(strlen(h.line) > 100 && strlen(h.line) < 2000);
    gmi_log(NULL, GM_LOG_ERROR, "to nobody");
    log.write = NULL;
    gmi_log(&log, GM_LOG_ERROR, "to nobody");
    assert_int_equal(h.n_lines, 2);
}

/* ---- clock --------------------------------------------------------------------------------------- */

static void deadlines(void **state)
{
    (void)state;
    assert_true(gmi_deadline_after_ms(0) == GMI_NEVER);
    assert_true(gmi_deadline_after_ms(-5) == GMI_NEVER);
    assert_false(gmi_deadline_passed(GMI_NEVER));
    assert_int_equal(gmi_deadline_poll_ms(GMI_NEVER), -1);
    int64_t now = gmi_now_ns();
    assert_true(gmi_deadline_passed(now));
    assert_true(gmi_deadline_passed(0));
    assert_int_equal(gmi_deadline_poll_ms(now - GMI_NS_PER_S), 0);
    assert_false(gmi_deadline_passed(gmi_deadline_after_ms(600000)));
    assert_in_range(gmi_deadline_poll_ms(gmi_deadline_after_ms(60000)), 1, 60000);
    assert_in_range(gmi_deadline_poll_ms(gmi_now_ns() + 1), 0, 1); /* rounded up: poll(0) would spin */
    assert_int_equal(gmi_deadline_poll_ms(GMI_NEVER - 1), INT32_MAX);
    assert_true(gmi_now_ns() >= now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_meaning),
        cmocka_unit_test(the_first_cause_stays),
        cmocka_unit_test(no_record_is_fine),
        cmocka_unit_test(a_refused_system_call_says_why),
        cmocka_unit_test(long_sentences_are_cut_and_terminated),
        cmocka_unit_test(only_wanted_lines_are_logged),
        cmocka_unit_test(deadlines),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
