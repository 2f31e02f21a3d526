// gloo_allreduce.cc - times Gloo's all-reduce of floats in place over its tcp transport.
//
//     RANK=r WORLD_SIZE=n GLOO_STORE=folder gloo_allreduce ALGORITHM BYTES...
//
// ALGORITHM: ring, bcube (gloo::allreduce); ringchunked, hd (the older classes; hd is
// halving-doubling), the latter two also with -sync (pairs in synchronous mode) or -busy (the same,
// polling without sleeping). GLOO_HOST (default 127.0.0.1) or GLOO_IFACE says which address. See
// driver.h.
#include <gloo/algorithm.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"

using Context = std::shared_ptr<gloo::rendezvous::Context>;
template <typename T> using Reduce = void (*)(void *, const void *, const void *, size_t);

static std::string env(const char *name, const char *fallback)
{
    const char *text = getenv(name);
    return text ? text : fallback;
}

static bool takes_suffix(std::string &text, const std::string &suffix)
{
    if (text.size() < suffix.size() ||
        text.compare(text.size() - suffix.size(), suffix.size(), suffix))
        return false;
    text.resize(text.size() - suffix.size());
    return true;
}

struct Bout {
    Context     context, old_context; // of the older classes, whose pairs may be synchronous
    std::string algorithm;
    int         rank, n_ranks;
    std::vector<float> values;
    std::unique_ptr<gloo::Algorithm> old_algorithm;

    void meet()
    {
        gloo::transport::tcp::attr attr;
        if (getenv("GLOO_IFACE")) attr.iface = getenv("GLOO_IFACE");
        else attr.hostname = env("GLOO_HOST", "127.0.0.1");
        auto device = gloo::transport::tcp::CreateDevice(attr);
        gloo::rendezvous::FileStore store(env("GLOO_STORE", "gloo-store"));
        context = std::make_shared<gloo::rendezvous::Context>(rank, n_ranks);
        context->connectFullMesh(store, device);
        bool is_busy = takes_suffix(algorithm, "-busy"),
             is_sync = takes_suffix(algorithm, "-sync") || is_busy;
        if (algorithm != "ringchunked" && algorithm != "hd") return;
        gloo::rendezvous::PrefixStore old_store("old", store);
        old_context = std::make_shared<gloo::rendezvous::Context>(rank, n_ranks);
        old_context->connectFullMesh(old_store, device);
        for (int i = 0; is_sync && i < n_ranks; i++)
            if (i != rank) old_context->getPair(i)->setSync(true, is_busy);
    }

    void take_size(size_t n_elems)
    {
        old_algorithm.reset();
        values.assign(n_elems, 0);
        std::vector<float *> pointers{ values.data() };
        if (algorithm == "ringchunked")
            old_algorithm.reset(
                new gloo::AllreduceRingChunked<float>(old_context, pointers, (int)n_elems));
        if (algorithm == "hd")
            old_algorithm.reset(
                new gloo::AllreduceHalvingDoubling<float>(old_context, pointers, (int)n_elems));
    }

    void all_reduce()
    {
        if (old_algorithm) {
            old_algorithm->run();
            return;
        }
        gloo::AllreduceOptions options(context);
        options.setAlgorithm(algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                  : gloo::AllreduceOptions::Algorithm::RING);
        options.setOutput(values.data(), values.size());
        options.setReduceFunction(static_cast<Reduce<float>>(&gloo::sum<float>));
        gloo::allreduce(options);
    }

    void combine(double *figures, size_t count, Reduce<double> reduce)
    {
        gloo::AllreduceOptions options(context);
        options.setOutput(figures, count);
        options.setReduceFunction(reduce);
        gloo::allreduce(options);
    }

    void barrier()
    {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    }

    long checked()
    {
        driver_fill(values.data(), values.size(), rank);
        barrier();
        all_reduce();
        return driver_count_wrong(values.data(), values.size(), n_ranks);
    }
};

static const Reduce<double> highest = static_cast<Reduce<double>>(&gloo::max<double>);
static const Reduce<double> total = static_cast<Reduce<double>>(&gloo::sum<double>);

static int choose_iters(Bout &b, size_t size_bytes)
{
    int    n_warmup = driver_warmup(size_bytes);
    double begin_s = driver_now_s();
    for (int i = 0; i < n_warmup; i++) b.all_reduce();
    double estimate_s = (driver_now_s() - begin_s) / n_warmup;
    b.combine(&estimate_s, 1, highest);
    return driver_iters(estimate_s);
}

static void measure(Bout &b, size_t size_bytes)
{
    struct driver_result r = {};
    r.n_ranks = b.n_ranks;
    r.size_bytes = size_bytes;
    b.take_size(size_bytes / sizeof(float));
    long n_wrong = b.checked();
    memset(b.values.data(), 0,
           size_bytes); // sums that are added to themselves grow without end; zeros stay
    b.barrier();
    r.n_iters = choose_iters(b, size_bytes);
    std::vector<double> times_s((size_t)r.n_iters);
    for (double &t : times_s) {
        b.barrier();
        double begin_s = driver_now_s();
        b.all_reduce();
        t = driver_now_s() - begin_s;
    }
    b.combine(times_s.data(), times_s.size(), highest);
    int n = r.n_iters / 2 > 2 ? r.n_iters / 2 : 2;
    b.barrier();
    double cpu_s = driver_cpu_s(), begin_s = driver_now_s();
    for (int i = 0; i < n; i++) b.all_reduce();
    double most[] = { (driver_now_s() - begin_s) / n, 0 };
    double sums[] = { (driver_cpu_s() - cpu_s) / n, 0 };
    n_wrong += b.checked();
    most[1] = driver_peak_rss_bytes();
    sums[1] = (double)n_wrong;
    b.combine(most, 2, highest);
    b.combine(sums, 2, total);
    r.times_s = times_s.data();
    r.back_to_back_s = most[0];
    r.peak_rss_bytes = most[1];
    r.cpu_s = sums[0];
    r.n_wrong = (long)sums[1];
    if (b.rank == 0) driver_print(&r);
    b.barrier();
}

int main(int argc, char **argv)
{
    Bout b;
    b.rank = atoi(env("RANK", "0").c_str());
    b.n_ranks = atoi(env("WORLD_SIZE", "1").c_str());
    b.algorithm = argc > 1 ? argv[1] : "ring";
    b.meet();
    for (int i = 2; i < argc; i++) measure(b, strtoull(argv[i], nullptr, 10));
    b.barrier();
    return 0;
}
