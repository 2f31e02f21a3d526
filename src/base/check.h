/* check.h - a broken invariant of our own stops the process, in release builds too.
 *
 * For what cannot happen whatever the caller, the network or the machine do. Everything else is an
 * error that is returned. */
#ifndef GMI_CHECK_H
#define GMI_CHECK_H

_Noreturn void gmi_check_failed(const char *file, int line, const char *expression);

#define GMI_CHECK(expression)                                                                      \
    do {                                                                                           \
        if (__builtin_expect(!(expression), 0)) gmi_check_failed(__FILE__, __LINE__, #expression); \
    } while (0)

#endif
