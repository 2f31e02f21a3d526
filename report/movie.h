/* movie.h - the page's pictures as files: the animation as a film, the charts as SVG. Both come from the page itself,
 * opened in a browser. */
#ifndef REPORT_MOVIE_H
#define REPORT_MOVIE_H

#include <stdbool.h>

#include "gradmesh.h"
#include "report/browser.h"

struct gmr_movie {
    const char *path;         /* ends in .mp4, .gif or .webm */
    int         width;        /* of the picture */
    int         frames_per_s;
    double      play_s;       /* how long the animation takes; the end is shown two seconds more */
    bool        is_dark;
};

/* False: no film can be made by this name. */
bool gmr_movie_knows(const char *path);

/* `page`: a page that has been written. *n_frames: how many it became. */
gm_status gmr_movie_make(struct gmr_browser *browser, const char *page, const struct gmr_movie *movie, int *n_frames,
                         gm_error *error);

/* Writes each chart, and the animation's pictures, into the directory, which is made when needed. *n_files: how many. */
gm_status gmr_svg_write(struct gmr_browser *browser, const char *page, const char *directory, bool is_dark, int *n_files,
                        gm_error *error);

#endif
