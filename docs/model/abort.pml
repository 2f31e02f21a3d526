/* abort.pml - how a death becomes one error on every survivor, for the model checker Spin.
 *
 *        data links: a ring                    control: a star around rank 0
 *
 *        0 ---> 1 ---> 2 ---> 0                1 <--> 0 <--> 2
 *
 * Every rank sends CALLS tokens to its right and takes as many from its left. At any moment a rank may
 * die: the kernel closes its connections, behind whatever it had sent. Who notices first tells rank 0,
 * rank 0 tells everybody; each keeps the first cause that it learns, closes its links, and is through.
 * So the links of survivors break too, and may break earlier than the word about the death arrives: a
 * broken data link only makes its peer a suspect. It becomes the cause when nothing better is heard
 * within a time in which a word gets through. That is what Spin's `timeout` says: it can run when
 * nothing else can.
 *
 * Asked: does every survivor end? With one death, do all name the dead rank? With two at once, does
 * each name one of the dead? And without a death, nobody.
 *
 *   N ranks   CALLS tokens   DEATHS how many may die
 *
 * -DNO_GRACE takes the suspect for the culprit at once. Then a survivor gets blamed, and a search that
 * does not find that would be worth nothing. */
#ifndef N
#define N 3
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define NOBODY 255
#define FAILURE 1
#define END     2 /* of file */

chan data[N] = [1] of { bit };        /* from r to r + 1 */
chan up[N] = [3] of { byte, byte };   /* from r to rank 0: kind, culprit */
chan down[N] = [3] of { byte, byte }; /* from rank 0 to r */

bool is_closed[N]; /* r has closed its data links, or the kernel has */
bool is_dead[N];
byte cause[N];
byte n_dead = 0, n_complete = 0, n_through = 0;

/* Everything that r still has to say stands in the channels before the end of file. */
inline close_all()
{
    is_closed[r] = true;
    if
    :: r == 0 -> for (k : 1 .. N - 1) { down[k] ! END, 0 }
    :: else -> up[r] ! END, 0
    fi
}

inline learn(culprit)
{
    cause[r] = culprit;
    if
    :: r == 0 -> for (k : 1 .. N - 1) { down[k] ! FAILURE, culprit }
    :: else -> up[r] ! FAILURE, culprit
    fi
}

/* Rank 0: a word, or the end of the connection, which is a word about its other end. */
#define HEAR_FROM(k)                                \
    :: atomic { r == 0 && nempty(up[k]) ->          \
            up[k] ? kind, who;                      \
            if :: kind == END -> who = k :: else fi; \
            learn(who); break }

proctype rank(byte r)
{
    byte sent = 0, got = 0, suspect = NOBODY, kind, who, k;
    byte left = (r + N - 1) % N, right = (r + 1) % N;
    bool is_complete = false;

    do
    :: atomic { n_dead < DEATHS && n_complete < N ->
            n_dead++; is_dead[r] = true; close_all(); goto over }

    :: atomic { sent < CALLS && !is_closed[right] && nfull(data[r]) -> data[r] ! 1; sent++ }
    :: atomic { got < CALLS && nempty(data[left]) -> data[left] ? _; got++ }
    :: atomic { sent == CALLS && got == CALLS && !is_complete -> is_complete = true; n_complete++ }

    :: atomic { suspect == NOBODY && got < CALLS && is_closed[left] && empty(data[left]) -> suspect = left }
    :: atomic { suspect == NOBODY && sent < CALLS && is_closed[right] -> suspect = right }
#ifdef NO_GRACE
    :: atomic { suspect != NOBODY -> learn(suspect); break }
#else
    :: atomic { suspect != NOBODY && timeout -> learn(suspect); break }
#endif

    :: atomic { r != 0 && nempty(down[r]) ->
            down[r] ? kind, who;
            if
            :: kind == FAILURE -> cause[r] = who
            :: else -> learn(0)
            fi;
            break }
    HEAR_FROM(1)
#if N > 2
    HEAR_FROM(2)
#endif
#if N > 3
    HEAR_FROM(3)
#endif

    :: atomic { n_complete == N && n_dead == 0 -> break } /* nobody can die any more: all end well */
    od;
    if
    :: cause[r] != NOBODY -> atomic { close_all() }
    :: else
    fi;
    assert(cause[r] == NOBODY || is_dead[cause[r]]);
over:
    atomic { n_through++ }
}

init
{
    byte k;
    atomic {
        for (k : 0 .. N - 1) { cause[k] = NOBODY }
        for (k : 0 .. N - 1) { run rank(k) }
    }
    n_through == N;
    /* A death before all were through with their calls is everybody's error. */
    for (k : 0 .. N - 1) {
        assert(is_dead[k] || (cause[k] != NOBODY) == (n_dead > 0))
    }
}
