// sampler_test.c: choices against exact probabilities, penalties, reproducibility and saved states.

#include "text_fixtures.h"

#include <math.h>
#include <time.h>

static uint64_t random_state = 7;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_logit(void)
{
    return (float)((double)random_u32() / 4294967296.0 * 20 - 10);
}

static struct sampler *sampler_of(int32_t n_vocab, struct sampler_params params)
{
    struct carat_error err = {0};
    struct sampler *s = sampler_new(n_vocab, &params, NULL, 0, &err);
    if (s == NULL)
        fail_msg("%s", err.message);
    return s;
}

static int32_t sample(struct sampler *s, const float *logits, int32_t n)
{
    float copy[4096];
    int32_t id = -1;
    struct carat_error err = {0};
    memcpy(copy, logits, (size_t)n * sizeof *copy);
    if (!sampler_sample(s, copy, &id, NULL, &err))
        fail_msg("%s", err.message);
    return id;
}

// --- distribution ---

enum { N_SMALL = 12, N_DRAWS = 200000 };

static const float small_logits[N_SMALL] = {2.5f, -1.0f, 3.0f, 0.0f, 1.5f, 2.9f, -4.0f, 1.4f, 0.3f, 2.2f, -INFINITY, 1.0f};

// Probabilities by the definitions, one by one, in f64.
static void exact_probabilities(const struct sampler_params *p, double *probability)
{
    int order[N_SMALL];
    for (int i = 0; i < N_SMALL; i++)
        order[i] = i;
    for (int i = 0; i < N_SMALL; i++)
        for (int j = i + 1; j < N_SMALL; j++)
            if (small_logits[order[j]] > small_logits[order[i]]) {
                int swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
    int n = p->top_k > 0 && p->top_k < N_SMALL ? p->top_k : N_SMALL;
    double weight[N_SMALL], total = 0, mass = 0;
    for (int i = 0; i < n; i++)
        total += weight[i] = exp((double)(small_logits[order[i]] - small_logits[order[0]]) / (double)p->temperature);
    int kept = 0;
    while (kept < n && (kept == 0 || p->top_p >= 1 || mass < (double)p->top_p * total) &&
           (kept == 0 || weight[kept] >= (double)p->min_p))
        mass += weight[kept++];
    for (int i = 0; i < N_SMALL; i++)
        probability[i] = 0;
    for (int i = 0; i < kept; i++)
        probability[order[i]] = weight[i] / mass;
}

static void expect_distribution(struct sampler_params params)
{
    double probability[N_SMALL];
    int counts[N_SMALL] = {0};
    exact_probabilities(&params, probability);
    params.seed = 12345;
    struct sampler *s = sampler_of(N_SMALL, params);
    for (int i = 0; i < N_DRAWS; i++)
        counts[sample(s, small_logits, N_SMALL)]++;
    sampler_free(s);
    double chi_square = 0;
    for (int i = 0; i < N_SMALL; i++) {
        double expected = probability[i] * N_DRAWS;
        if (expected == 0)
            assert_int_equal(counts[i], 0);
        else
            chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    // 11 degrees of freedom at most: 31.3 is exceeded by chance once in a thousand runs; the seed is fixed.
    if (chi_square > 31.3)
        fail_msg("chi-square %g", chi_square);
}

static void draws_follow_the_exact_probabilities(void **state)
{
    (void)state;
    struct sampler_params p = sampler_defaults();
    expect_distribution(p);
    p.temperature = 0.6f;
    p.top_k = 5;
    expect_distribution(p);
    p = (struct sampler_params){.temperature = 1.7f, .top_p = 1, .repetition_penalty = 1};
    expect_distribution(p);
    p.top_p = 0.7f;
    expect_distribution(p);
    p.top_p = 1;
    p.min_p = 0.2f;
    expect_distribution(p);
    p.top_k = 6;
    p.top_p = 0.9f;
    p.min_p = 0.3f;
    expect_distribution(p);
    p = (struct sampler_params){.temperature = 1, .top_p = 0, .repetition_penalty = 1}; // always the best
    expect_distribution(p);
}

static void without_top_k_the_search_widens_until_top_p_is_reached(void **state)
{
    (void)state;
    enum { N = 1000 };
    float logits[N];
    for (int i = 0; i < N; i++) // nearly flat, so that 0.9 needs about 900 tokens
        logits[i] = (float)(i % 7) * 1e-3f;
    struct sampler *s =
        sampler_of(N, (struct sampler_params){.temperature = 1, .top_p = 0.9f, .repetition_penalty = 1, .seed = 3});
    int seen = 0;
    char was_drawn[N] = {0};
    for (int i = 0; i < 15000; i++) {
        int32_t id = sample(s, logits, N);
        seen += !was_drawn[id];
        was_drawn[id] = 1;
    }
    assert_in_range(seen, 895, 905);
    sampler_free(s);
}

// --- selection ---

static int by_logit(const void *a, const void *b)
{
    const struct sampler_candidate *x = a, *y = b;
    return x->value > y->value ? -1 : x->value < y->value ? 1 : x->id - y->id;
}

static void the_reported_top_is_that_of_a_full_sort(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        int32_t n = 1 + (int32_t)(random_u32() % 3000);
        float logits[3000], copy[3000];
        struct sampler_candidate sorted[3000], top[SAMPLER_MAX_TOP];
        for (int32_t i = 0; i < n; i++) {
            logits[i] = round % 3 == 0 ? (float)(random_u32() % 5) : random_logit(); // with and without ties
            if (round % 5 == 0 && random_u32() % 2 == 0 && i > 0)
                logits[i] = -INFINITY;
            sorted[i] = (struct sampler_candidate){i, logits[i]};
        }
        qsort(sorted, (size_t)n, sizeof *sorted, by_logit);
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += exp((double)logits[i]);
        struct sampler *s = sampler_of(n, sampler_greedy());
        struct sampler_report report = {.top = top, .n_top = 1 + (int32_t)(random_u32() % SAMPLER_MAX_TOP)};
        int32_t wanted = report.n_top, id;
        memcpy(copy, logits, sizeof copy);
        assert_true(sampler_sample(s, copy, &id, &report, NULL));
        assert_int_equal(id, sorted[0].id);
        assert_true(report.n_top <= wanted);
        for (int32_t i = 0; i < report.n_top; i++) {
            assert_int_equal(top[i].id, sorted[i].id);
            assert_true(fabs((double)top[i].value - ((double)sorted[i].value - log(sum))) < 1e-5);
        }
        assert_true(report.n_top == wanted || sorted[report.n_top].value == -INFINITY || report.n_top == n);
        assert_true(report.logprob == top[0].value);
        sampler_free(s);
    }
}

static void candidates_of_a_gpu_give_the_same_tokens_as_all_logits(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct sampler_params p = sampler_defaults();
    p.repetition_penalty = 1.3f;
    p.presence_penalty = 0.5f;
    p.frequency_penalty = 0.2f;
    p.seed = 99;
    const struct sampler_bias bias[] = {{5, -3.0f}, {6, -INFINITY}};
    p.bias = bias;
    p.n_bias = 2;
    const int32_t suppressed[] = {17, 18};
    for (int greedy = 0; greedy < 2; greedy++) {
        p.temperature = greedy ? 0 : 0.9f;
        struct sampler *all = sampler_new(N, &p, suppressed, 2, NULL);
        struct sampler *few = sampler_new(N, &p, suppressed, 2, NULL);
        for (int step = 0; step < 300; step++) {
            float logits[N];
            struct sampler_candidate sorted[N], top_all[5], top_few[5];
            double sum = 0;
            for (int32_t i = 0; i < N; i++) {
                logits[i] = random_logit() + (i < 30 ? 8 : 0);
                sorted[i] = (struct sampler_candidate){i, logits[i]};
                if (i != 6 && i != 17 && i != 18)
                    sum += exp((double)logits[i] - (i == 5 ? 3.0 : 0.0));
            }
            qsort(sorted, N, sizeof *sorted, by_logit);
            int32_t n = sampler_candidates_needed(few);
            assert_true(n < N);
            int32_t a, b;
            struct sampler_report report_all = {.top = top_all, .n_top = 5}, report_few = {.top = top_few, .n_top = 5};
            assert_true(sampler_sample(all, logits, &a, &report_all, NULL));
            assert_true(sampler_sample_candidates(few, sorted, n, (float)log(sum), &b, &report_few, NULL));
            assert_int_equal(a, b);
            for (int i = 0; i < 5; i++)
                assert_int_equal(top_all[i].id, top_few[i].id);
            assert_true(fabsf(report_all.logprob - report_few.logprob) < 1e-4f);
            sampler_accept(all, a);
            sampler_accept(few, b);
        }
        sampler_free(all);
        sampler_free(few);
    }
}

static bool mask_all(void *context, float *logits, int32_t n, struct carat_error *err)
{
    (void)context, (void)err;
    for (int32_t i = 0; i < n; i++)
        logits[i] = i == 3 ? logits[i] : -INFINITY;
    return true;
}

static void a_mask_limits_the_choice_and_asks_for_all_logits(void **state)
{
    (void)state;
    struct sampler *s = sampler_of(N_SMALL, sampler_defaults());
    assert_int_equal(sampler_candidates_needed(s), N_SMALL);
    sampler_set_mask(s, mask_all, NULL);
    assert_int_equal(sample(s, small_logits, N_SMALL), 3);
    assert_int_equal(sampler_candidates_needed(s), N_SMALL);
    struct sampler_candidate one = {1, 1.0f};
    int32_t id;
    assert_false(sampler_sample_candidates(s, &one, 1, NAN, &id, NULL, NULL));
    sampler_free(s);
}

// --- penalties ---

static void a_token_is_penalised_once_however_often_it_occurs_and_in_greedy_mode(void **state)
{
    (void)state;
    const float logits[4] = {4.0f, 3.0f, -1.0f, 1.0f};
    struct sampler_params p = sampler_greedy();
    p.repetition_penalty = 1.2f;
    struct sampler *s = sampler_of(4, p);
    assert_int_equal(sample(s, logits, 4), 0);
    for (int i = 0; i < 10; i++)
        sampler_accept(s, 0);
    assert_int_equal(sample(s, logits, 4), 0); // 4 / 1.2 = 3.33; ten times would be 0.65
    p.repetition_penalty = 1.4f;
    assert_true(sampler_set(s, &p, NULL));
    assert_int_equal(sample(s, logits, 4), 1); // 2.86
    p.repetition_penalty = 1;
    p.presence_penalty = 0.9f;
    assert_true(sampler_set(s, &p, NULL));
    assert_int_equal(sample(s, logits, 4), 0);
    p.frequency_penalty = 0.05f;
    assert_true(sampler_set(s, &p, NULL));
    assert_int_equal(sample(s, logits, 4), 1); // 4 - 0.9 - 10 * 0.05 = 2.6
    p.penalty_window = 1;
    assert_true(sampler_set(s, &p, NULL));
    assert_int_equal(sample(s, logits, 4), 0); // only one occurrence is left: 3.05
    sampler_free(s);
}

static void a_negative_logit_is_pushed_down_not_up(void **state)
{
    (void)state;
    const float logits[2] = {-1.0f, -1.1f};
    struct sampler_params p = sampler_greedy();
    p.repetition_penalty = 1.5f;
    struct sampler *s = sampler_of(2, p);
    sampler_accept(s, 0);
    assert_int_equal(sample(s, logits, 2), 1);
    sampler_free(s);
}

static void only_the_window_is_remembered(void **state)
{
    (void)state;
    const float logits[3] = {3.0f, 2.9f, 0.0f};
    struct sampler_params p = sampler_greedy();
    p.presence_penalty = 1;
    p.penalty_window = 3;
    struct sampler *s = sampler_of(3, p);
    sampler_accept(s, 0);
    sampler_accept(s, 2);
    sampler_accept(s, 2);
    assert_int_equal(sample(s, logits, 3), 1);
    sampler_accept(s, 2); // 0 falls out
    assert_int_equal(sample(s, logits, 3), 0);
    sampler_accept(s, 0);
    sampler_reset(s);
    assert_int_equal(sample(s, logits, 3), 0);
    sampler_free(s);
}

static void bias_and_suppression_move_the_choice(void **state)
{
    (void)state;
    const float logits[3] = {3.0f, 2.0f, 1.0f};
    const struct sampler_bias bias[] = {{0, -INFINITY}, {2, 1.5f}};
    const int32_t suppressed[] = {2};
    struct sampler_params p = sampler_greedy();
    p.bias = bias;
    p.n_bias = 2;
    struct sampler *s = sampler_of(3, p);
    assert_int_equal(sample(s, logits, 3), 2);
    assert_int_equal(sampler_candidates_needed(s), 3); // a raised token might not be among the best
    sampler_free(s);
    s = sampler_new(3, &p, suppressed, 1, NULL);
    assert_int_equal(sample(s, logits, 3), 1);
    sampler_free(s);
}

// --- errors ---

static void what_is_no_number_is_an_error_not_a_token(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct sampler *s = sampler_of(600, greedy ? sampler_greedy() : sampler_defaults());
        for (size_t w = 0; w < 2; w++) {
            for (int at = 0; at < 600; at += 37) {
                float logits[600] = {0};
                struct sampler_candidate candidates[3] = {{1, 1}, {2, wrong[w]}, {3, 0}};
                struct carat_error err = {0};
                int32_t id;
                logits[at] = wrong[w];
                assert_false(sampler_sample(s, logits, &id, NULL, &err));
                assert_int_equal(err.code, CARAT_BAD_NUMBER);
                assert_false(sampler_sample_candidates(s, candidates, 3, NAN, &id, NULL, &err));
                assert_int_equal(err.code, CARAT_BAD_NUMBER);
            }
        }
        float logits[600];
        struct carat_error err = {0};
        int32_t id;
        for (int i = 0; i < 600; i++)
            logits[i] = -INFINITY;
        assert_false(sampler_sample(s, logits, &id, NULL, &err));
        assert_int_equal(err.code, CARAT_BAD_NUMBER);
        sampler_free(s);
    }
}

static void parameters_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    struct carat_error err = {0};
    const struct sampler_bias outside = {100, 0}, infinite = {1, INFINITY};
    struct sampler_params p[8];
    for (int i = 0; i < 8; i++)
        p[i] = sampler_defaults();
    p[0].temperature = NAN;
    p[1].top_p = -0.1f;
    p[2].min_p = 2;
    p[3].repetition_penalty = 0;
    p[4].penalty_window = -1;
    p[5].bias = &outside;
    p[6].bias = &infinite;
    p[5].n_bias = p[6].n_bias = 1;
    p[7].penalty_window = SAMPLER_MAX_WINDOW + 2;
    const char *names[] = {
        "temperature", "top_p", "min_p", "repetition_penalty", "penalty_window", "logit_bias", "logit_bias", "penalty_window"};
    struct sampler *s = sampler_of(100, sampler_greedy());
    for (int i = 0; i < 8; i++) {
        assert_null(sampler_new(100, &p[i], NULL, 0, &err));
        assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, names[i]));
        assert_false(sampler_set(s, &p[i], NULL));
    }
    sampler_free(s);
    const int32_t suppressed = 100;
    p[0] = sampler_defaults();
    assert_null(sampler_new(100, &p[0], &suppressed, 1, &err));
    assert_null(sampler_new(0, &p[0], NULL, 0, &err));
}

// --- reproducibility and state ---

static void the_same_seed_gives_the_same_tokens_and_another_seed_others(void **state)
{
    (void)state;
    struct sampler_params p = sampler_defaults();
    int differs = 0, first_of_seed[16] = {0};
    for (uint64_t seed = 1; seed <= 16; seed++) {
        p.seed = seed;
        struct sampler *a = sampler_of(N_SMALL, p), *b = sampler_of(N_SMALL, p);
        for (int i = 0; i < 100; i++) {
            int32_t id = sample(a, small_logits, N_SMALL);
            assert_int_equal(id, sample(b, small_logits, N_SMALL));
            if (i == 0)
                first_of_seed[seed - 1] = id;
        }
        sampler_free(a);
        sampler_free(b);
    }
    for (int i = 1; i < 16; i++)
        differs += first_of_seed[i] != first_of_seed[i - 1];
    assert_true(differs > 6);
}

static void the_original_random_numbers_are_reproduced(void **state)
{
    (void)state;
    enum { N = 1024 }; // a flat distribution: the token tells the drawn number to 1 in 1024
    float logits[N] = {0};
    struct sampler_params p = sampler_original_defaults();
    p.top_k = 0;
    p.top_p = 1;
    for (uint64_t seed = 0; seed < 3; seed++) {
        uint64_t x = seed == 0 ? 0x00C0FFEE5E7Du : seed * 0x123456789u;
        p.seed = seed == 0 ? 0 : x;
        struct sampler *s = sampler_of(N, p);
        for (int i = 0; i < 50; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            int32_t want = (int32_t)((double)(uint32_t)x / 4294967296.0 * N);
            assert_int_equal(sample(s, logits, N), want);
        }
        sampler_free(s);
    }
}

static void a_dumped_state_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct sampler_params p = sampler_defaults();
    const struct sampler_bias bias[] = {{4, 0.5f}};
    p.seed = 5;
    p.presence_penalty = 0.7f;
    p.frequency_penalty = 0.1f;
    p.min_p = 0.01f;
    p.penalty_window = 7;
    p.bias = bias;
    p.n_bias = 1;
    struct sampler *a = sampler_of(N_SMALL, p);
    for (int i = 0; i < 20; i++)
        sampler_accept(a, sample(a, small_logits, N_SMALL));
    uint8_t bytes[256];
    size_t n = sampler_dump(a, true, bytes, sizeof bytes);
    assert_int_equal(n, 40 + 4 * 7 + 20 + 8);
    assert_int_equal(sampler_dump(a, true, NULL, 0), n);
    struct sampler *b = sampler_of(N_SMALL, sampler_greedy());
    assert_true(sampler_restore(b, bytes, n, NULL));
    uint8_t again[256];
    assert_int_equal(sampler_dump(b, true, again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    for (int i = 0; i < 200; i++) {
        int32_t id = sample(a, small_logits, N_SMALL);
        assert_int_equal(id, sample(b, small_logits, N_SMALL));
        sampler_accept(a, id);
        sampler_accept(b, id);
    }
    sampler_free(a);
    sampler_free(b);
}

static void the_original_layout_is_written_and_read(void **state)
{
    (void)state;
    struct sampler_params p = sampler_original_defaults();
    p.seed = 0x1122334455667788u;
    p.repetition_penalty = 1.5f;
    struct sampler *s = sampler_of(1000, p);
    sampler_accept(s, 258);
    sampler_accept(s, 3);
    const uint8_t want[] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x33,
        0x33, 0x33, 0x3f, 40, 0, 0, 0, 0x33, 0x33, 0x73, 0x3f, 0, 0, 0xc0, 0x3f, 64, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 3, 0, 0, 0};
    uint8_t got[sizeof want];
    assert_int_equal(sampler_dump(s, false, got, sizeof got), sizeof want);
    assert_memory_equal(got, want, sizeof want);
    struct sampler *other = sampler_of(1000, sampler_greedy());
    assert_true(sampler_restore(other, want, sizeof want, NULL));
    assert_int_equal(sampler_dump(other, false, got, sizeof got), sizeof want);
    assert_memory_equal(got, want, sizeof want);
    sampler_free(s);
    sampler_free(other);
}

static void a_damaged_state_changes_nothing(void **state)
{
    (void)state;
    struct sampler_params p = sampler_defaults();
    p.seed = 5;
    struct sampler *s = sampler_of(50, p);
    sampler_accept(s, 7);
    uint8_t before[128], bytes[128], after[128];
    size_t n = sampler_dump(s, true, before, sizeof before);
    for (size_t cut = 0; cut < n; cut++)
        if (cut != n - 20) // the base layout by itself is complete
            assert_false(sampler_restore(s, before, cut, NULL));
    static const struct {
        size_t at;
        uint8_t value;
    } damage[] = {{19, 0xff}, {23, 0xff}, {35, 0xff}, {37, 1}, {40, 50}, {43, 0x80}, {60, 1}};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        memcpy(bytes, before, n);
        bytes[damage[i].at] = damage[i].value;
        struct carat_error err = {0};
        assert_false(sampler_restore(s, bytes, n, &err));
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_int_equal(sampler_dump(s, true, after, sizeof after), n);
        assert_memory_equal(before, after, n);
    }
    memset(bytes, 0, sizeof bytes);
    assert_false(sampler_restore(s, bytes, 40, NULL));
    sampler_free(s);
}

// --- speed ---

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void the_full_vocabulary_is_sampled_in_well_under_a_token_time(void **state)
{
    (void)state;
    enum { N = 262144 };
    float *logits = malloc(N * sizeof *logits), *copy = malloc(N * sizeof *copy);
    for (int i = 0; i < N; i++) // bell-shaped, like real logits
        logits[i] = 0.5f * (random_logit() + random_logit() + random_logit() + random_logit());
    struct sampler_params all = {.temperature = 1, .top_p = 0.95f, .repetition_penalty = 1};
    const struct {
        const char *name;
        struct sampler_params params;
    } cases[] = {{"defaults", sampler_defaults()}, {"greedy", sampler_greedy()}, {"top-p without top-k", all}};
    for (size_t c = 0; c < 3; c++) {
        struct sampler *s = sampler_of(N, cases[c].params);
        double best = 1;
        for (int i = 0; i < 20; i++) {
            memcpy(copy, logits, N * sizeof *copy);
            int32_t id;
            double start = seconds();
            assert_true(sampler_sample(s, copy, &id, NULL, NULL));
            double time = seconds() - start;
            best = time < best ? time : best;
        }
        print_message("  %-20s %.0f us\n", cases[c].name, best * 1e6);
        assert_true(best < 0.5); // allows for sanitizers
        sampler_free(s);
    }
    free(logits);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_exact_probabilities),
        cmocka_unit_test(without_top_k_the_search_widens_until_top_p_is_reached),
        cmocka_unit_test(the_reported_top_is_that_of_a_full_sort),
        cmocka_unit_test(candidates_of_a_gpu_give_the_same_tokens_as_all_logits),
        cmocka_unit_test(a_mask_limits_the_choice_and_asks_for_all_logits),
        cmocka_unit_test(a_token_is_penalised_once_however_often_it_occurs_and_in_greedy_mode),
        cmocka_unit_test(a_negative_logit_is_pushed_down_not_up),
        cmocka_unit_test(only_the_window_is_remembered),
        cmocka_unit_test(bias_and_suppression_move_the_choice),
        cmocka_unit_test(what_is_no_number_is_an_error_not_a_token),
        cmocka_unit_test(parameters_out_of_range_are_refused_by_name),
        cmocka_unit_test(the_same_seed_gives_the_same_tokens_and_another_seed_others),
        cmocka_unit_test(the_original_random_numbers_are_reproduced),
        cmocka_unit_test(a_dumped_state_goes_on_where_it_stopped),
        cmocka_unit_test(the_original_layout_is_written_and_read),
        cmocka_unit_test(a_damaged_state_changes_nothing),
        cmocka_unit_test(the_full_vocabulary_is_sampled_in_well_under_a_token_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
