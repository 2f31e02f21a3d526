# Tables in Markdown from the records of bench/peers.sh.
#   awk -v part=short|full -f summary.awk FILE.jsonl...
# A figure is the median over the runs of each run's median. A ratio is the best peer's time over gradmesh's; beside it
# stands the range of that ratio over the runs. Bold is the best.

function text(name,    s) { # the value of a field of this line, without quotes; "" if it is not there
    if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
    s = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    gsub(/"/, "", s)
    return s
}
function median(list,    n, v, i, j, x) { # of numbers with spaces between them
    n = split(list, v, " ")
    for (i = 2; i <= n; i++) {
        x = v[i] + 0
        for (j = i - 1; j >= 1 && v[j] + 0 > x; j--) v[j + 1] = v[j]
        v[j + 1] = x
    }
    if (n == 0) return 0
    return (n % 2) ? v[(n + 1) / 2] + 0 : (v[n / 2] + v[n / 2 + 1]) / 2
}
function count(list,    v) { return split(list, v, " ") }
function is_ours(name) { return name ~ /^gradmesh/ }
function size_name(b) {
    if (b >= 1048576 && b % 1048576 == 0) return b / 1048576 " MiB"
    if (b >= 1024 && b < 1048576 && b % 1024 == 0) return b / 1024 " KiB"
    if (b < 1000) return b " B"
    while (match(b, /[0-9][0-9][0-9][0-9]($|,)/)) b = substr(b, 1, RSTART) "," substr(b, RSTART + 1)
    return b " B"
}
function time_name(us) {
    if (us < 1000) return sprintf("%.1f us", us)
    return (us < 1e5) ? sprintf("%.2f ms", us / 1e3) : sprintf("%.0f ms", us / 1e3)
}
function busbw(b, n, us) { return (us > 0) ? b / us / 1e3 * 2 * (n - 1) / n : 0 }
function rate_of(set,    s) { # "net-1gbit": bits per second
    s = set
    sub(/^net-/, "", s)
    if (s ~ /gbit/) return s * 1e9
    return (s ~ /mbit/) ? s * 1e6 : s * 1e3
}

# ---- reading -------------------------------------------------------------------------------------

function remember(list, key) { # in the order in which they come
    if (!((list, key) in seen)) {
        seen[list, key] = 1
        items[list] = items[list] (items[list] == "" ? "" : "\t") key
    }
}
function keep_sorted(list, key,    n, v, i, s, done) { # numbers, ascending
    if ((list, key) in seen) return
    seen[list, key] = 1
    n = split(items[list], v, "\t")
    for (i = 1; i <= n; i++) {
        if (!done && v[i] + 0 > key + 0) { s = s (s == "" ? "" : "\t") key; done = 1 }
        s = s (s == "" ? "" : "\t") v[i]
    }
    items[list] = done ? s : s (s == "" ? "" : "\t") key
}
{
    set = text("set"); run = text("run"); who = text("system")
    if (who == "limits") {
        variant = text("write_bytes") "," text("buffers") "," text("congestion_control")
        remember("variants", variant)
        limit[variant] = limit[variant] " " text("GBps")
        next
    }
    remember("sets", set)
    if (who == "iperf3") {
        iperf[set] = iperf[set] " " text("bits_per_second")
        next
    }
    n = text("world_size"); b = text("size_bytes"); key = set SUBSEP n SUBSEP b SUBSEP who
    keep_sorted("worlds" set, n)
    remember("systems" set SUBSEP n, who)
    keep_sorted("sizes" set SUBSEP n, b)
    times[key] = times[key] " " text("median_us")
    by_run[key, run] = text("median_us")
    cpu[key] = cpu[key] " " text("cpu_s_per_GB")
    rss[key] = rss[key] " " text("peak_rss_bytes")
    if (run + 0 > runs[set]) runs[set] = run + 0
    records[set]++
    wrong[set] += text("wrong")
}

# ---- comparing -----------------------------------------------------------------------------------

function time_of(set, n, b, s) { return median(times[set, n, b, s]) }
function ours(set, n,    v, i, c) { # which of our variants a set is about
    c = split(items["systems" set SUBSEP n], v, "\t")
    for (i = 1; i <= c; i++) if (is_ours(v[i])) return v[i]
    return ""
}
function has_ours(set,    w) {
    split(items["worlds" set], w, "\t")
    return ours(set, w[1]) != ""
}
function best_peer(set, n, b,    v, i, c, best, t, least) {
    c = split(items["systems" set SUBSEP n], v, "\t")
    for (i = 1; i <= c; i++) {
        t = time_of(set, n, b, v[i])
        if (is_ours(v[i]) || t <= 0) continue
        if (best == "" || t < least) { best = v[i]; least = t }
    }
    return best
}
function ratio_range(set, n, b, us_name,    v, i, c, r, t, mine, best, ratio, lo, hi) { # run by run
    c = split(items["systems" set SUBSEP n], v, "\t")
    for (r = 1; r <= runs[set]; r++) {
        mine = by_run[set, n, b, us_name, r]
        best = 0
        for (i = 1; i <= c; i++) {
            t = by_run[set, n, b, v[i], r]
            if (!is_ours(v[i]) && t > 0 && (best == 0 || t + 0 < best)) best = t + 0
        }
        if (mine <= 0 || best <= 0) continue
        ratio = best / mine
        if (lo == 0 || ratio < lo) lo = ratio
        if (ratio > hi) hi = ratio
    }
    return sprintf("%.2f to %.2f", lo, hi)
}
function duplex_limit(    v, i, c, best) {
    c = split(items["variants"], v, "\t")
    for (i = 1; i <= c; i++) if (median(limit[v[i]]) > best) best = median(limit[v[i]])
    return best
}
function title(set) {
    if (set == "tcp") return "Loopback TCP, all as they come"
    if (set == "cc") return "Loopback TCP, one congestion control for all"
    if (set == "shm") return "Shared memory"
    return "Network namespaces, links of " substr(set, 5)
}

# ---- the short table -----------------------------------------------------------------------------

function short(set,    nw, w, ns, s, i, j, n, b, mine, peer, t, p, top, line) {
    top = set == "tcp" ? duplex_limit() : 0
    printf("### %s\n\n%d interleaved runs; median all-reduce of floats in place; bus bandwidth in GB/s. Ratio: how many times as fast as the best peer (range over the runs).", title(set), runs[set])
    if (top > 0) printf(" Limit: what two processes send and receive at once by plain sockets here, %.2f GB/s.", top)
    printf("\n\n| ranks | size | gradmesh | | best peer | | ratio | range |%s\n", (top > 0) ? " of the limit |" : "")
    printf("|---|---|---|---|---|---|---|---|%s\n", (top > 0) ? "---|" : "")
    nw = split(items["worlds" set], w, "\t")
    for (i = 1; i <= nw; i++) {
        n = w[i]; mine = ours(set, n)
        ns = split(items["sizes" set SUBSEP n], s, "\t")
        for (j = 1; j <= ns; j++) {
            b = s[j]; t = time_of(set, n, b, mine); peer = best_peer(set, n, b); p = time_of(set, n, b, peer)
            if (t <= 0 || p <= 0) continue
            line = sprintf("| %d | %s | %s | %.2f | %s: %s | %.2f | **%.2f** | %s |", n, size_name(b), time_name(t), busbw(b, n, t), \
                           peer, time_name(p), busbw(b, n, p), p / t, ratio_range(set, n, b, mine))
            if (top > 0) line = line ((n == 2 && b >= 65536) ? sprintf(" %.2f |", busbw(b, n, t) / top) : " |")
            print line
        }
    }
    print ""
}
function net(set,    nw, w, ns, s, nv, v, i, j, k, n, b, t, wire, free) {
    wire = rate_of(set); free = median(iperf[set])
    printf("### %s\n\n%d interleaved runs. Of the wire: 2(N-1)/N size over time and rate.", title(set), runs[set])
    if (free > 0) printf(" iperf3 carries %.0f Mbit/s, %.3f of the wire.", free / 1e6, free / wire)
    print "\n"
    printf "| ranks | size | system | median | of the wire | of iperf3 |\n|---|---|---|---|---|---|\n"
    nw = split(items["worlds" set], w, "\t")
    for (i = 1; i <= nw; i++) {
        n = w[i]
        ns = split(items["sizes" set SUBSEP n], s, "\t")
        nv = split(items["systems" set SUBSEP n], v, "\t")
        for (j = 1; j <= ns; j++) for (k = 1; k <= nv; k++) {
            b = s[j]; t = time_of(set, n, b, v[k])
            if (t <= 0) continue
            printf("| %d | %s | %s | %s | %.3f | %s |\n", n, size_name(b), v[k], time_name(t), busbw(b, n, t) * 8e9 / wire, \
                (free > 0) ? sprintf("%.3f", busbw(b, n, t) * 8e9 / free) : "-")
        }
    }
    print ""
}

# ---- the full tables -----------------------------------------------------------------------------

function cell(what, set, n, b, s,    t) {
    t = time_of(set, n, b, s)
    if (t <= 0) return "-"
    if (what == "time") return time_name(t)
    if (what == "busbw") return sprintf("%.2f", busbw(b, n, t))
    if (what == "cpu") return sprintf("%.2f", median(cpu[set, n, b, s]))
    return sprintf("%.0f", median(rss[set, n, b, s]) / 1048576)
}
function full(set, what, heading, least_bytes,    nw, w, ns, s, nv, v, i, j, k, n, b, t, best, least, line, rule) {
    nw = split(items["worlds" set], w, "\t")
    for (i = 1; i <= nw; i++) {
        n = w[i]
        nv = split(items["systems" set SUBSEP n], v, "\t")
        line = "| size |"; rule = "|---|"
        for (k = 1; k <= nv; k++) { line = line " " v[k] " |"; rule = rule "---|" }
        printf "%s, %d ranks\n\n%s\n%s\n", heading, n, line, rule
        ns = split(items["sizes" set SUBSEP n], s, "\t")
        for (j = 1; j <= ns; j++) {
            b = s[j]; best = ""
            if (b + 0 < least_bytes) continue
            for (k = 1; k <= nv; k++) {
                t = time_of(set, n, b, v[k])
                if (t > 0 && (best == "" || t < least)) { best = v[k]; least = t }
            }
            line = "| " size_name(b) " |"
            for (k = 1; k <= nv; k++) {
                t = cell(what, set, n, b, v[k])
                line = line (v[k] == best && (what == "time" || what == "busbw") ? " **" t "** |" : " " t " |")
            }
            print line
        }
        print ""
    }
}
function everything(set) {
    printf "## %s: all figures\n\n%d records, %d runs, wrong elements: %d.\n\n", title(set), records[set], runs[set], wrong[set]
    full(set, "time", "Median time", 0)
    full(set, "busbw", "Bus bandwidth, GB/s", 65536)
    full(set, "cpu", "Processor seconds of all ranks per GB across their links", 65536)
    full(set, "rss", "Peak memory of a rank so far, MiB", 65536)
}
END {
    n_sets = split(items["sets"], all_sets, "\t")
    for (i_set = 1; i_set <= n_sets; i_set++) {
        set = all_sets[i_set]
        if (part == "full" && set !~ /^net-/) everything(set)
        else if (part != "full" && set ~ /^net-/) net(set)
        else if (part != "full" && has_ours(set)) short(set)
    }
}
