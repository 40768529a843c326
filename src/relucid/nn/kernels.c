/* Weights from latitudes or angles, and the gradient in them: one pass over memory each.

   The formulas are those of sphere_grad.py, which does the same by operations of torch wherever this is not built.
   Products and sums along a row run in float64. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
#define CHUNK 512 /* numbers of a row at a time, which stay in the nearest cache; a multiple of LANES */
#define LARGEST 512.0f /* beyond it, the reduction to a quarter turn would lose digits */
#define GRAIN 32768    /* numbers per thread, at least */

/* One version for each generation of processors, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(ONE_VERSION)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int64_t indices __attribute__((vector_size(LANES * sizeof(int64_t))));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (indices){__VA_ARGS__})
#endif

/* Whether the functions below use several threads. */
int is_threaded(void)
{
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

static int threads_for(ptrdiff_t numbers, int most)
{
    ptrdiff_t worth = 1 + numbers / GRAIN;
    return worth < most ? (int)worth : most;
}

/* The sine of r + quarter * pi/2, from sin r and cos r: odd quarters have the cosine. */
static inline double turned(double sine, double cosine, int32_t quarter)
{
    double found = quarter & 1 ? cosine : sine;
    return quarter & 2 ? -found : found;
}

static inline float turnedf(float sine, float cosine, int32_t quarter)
{
    float found = quarter & 1 ? cosine : sine;
    return quarter & 2 ? -found : found;
}

/* along = sin x and across = cos x for latitudes (1), the other way round for angles (0). */
FOR_EACH_CPU
static void sines(const float *restrict x, ptrdiff_t n, int latitude, float *restrict along, double *restrict across)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: what is added to it becomes an integer, in its last bits */
    int large = 0;
    for (ptrdiff_t k = 0; k < n; k++) {
        float rounded = x[k] * 0.63661977236758134f + round, quarters = rounded - round;
        int32_t quarter;
        memcpy(&quarter, &rounded, sizeof quarter);
        /* pi/2 in three parts; the products with the first two are exact */
        float r = ((x[k] - quarters * 1.5703125f) - quarters * 4.837512969970703e-4f) - quarters * 7.549789954891882e-8f;
        float z = r * r;
        float sine = r + r * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
        float cosine_minus_1 = -0.5f * z
            + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
        along[k] = turnedf(sine, 1.0f + cosine_minus_1, quarter + !latitude);
        across[k] = turned(sine, 1.0 + cosine_minus_1, quarter + latitude); /* float32 would round many to 1 */
        large |= fabsf(x[k]) > LARGEST;
    }
    if (large)
        for (ptrdiff_t k = 0; k < n; k++) {
            along[k] = latitude ? sinf(x[k]) : cosf(x[k]);
            across[k] = latitude ? cos(x[k]) : sin(x[k]);
        }
}

/* values[k] = start times the product of values[0] to values[k], for n values, n a multiple of LANES. */
FOR_EACH_CPU
static void multiply(double *values, ptrdiff_t n, double start)
{
    const lanes ones = {1, 1, 1, 1, 1, 1, 1, 1};
    lanes carried = ones * start;
    for (ptrdiff_t k = 0; k < n; k += LANES) {
        lanes x;
        memcpy(&x, values + k, sizeof x);
        x *= SHUFFLE(ones, x, 0, 8, 9, 10, 11, 12, 13, 14);
        x *= SHUFFLE(ones, x, 0, 0, 8, 9, 10, 11, 12, 13);
        x *= SHUFFLE(ones, x, 0, 0, 0, 0, 8, 9, 10, 11);
        lanes all = x * carried;
        carried *= SHUFFLE(x, x, 7, 7, 7, 7, 7, 7, 7, 7);
        memcpy(values + k, &all, sizeof all);
    }
}

/* values[k] = start plus the sum of values[k] to values[n - 1], for n values, n a multiple of LANES. */
FOR_EACH_CPU
static void add_from_right(double *values, ptrdiff_t n, double start)
{
    const lanes zeros = {0, 0, 0, 0, 0, 0, 0, 0};
    lanes carried = zeros + start;
    for (ptrdiff_t k = n - LANES; k >= 0; k -= LANES) {
        lanes x;
        memcpy(&x, values + k, sizeof x);
        x += SHUFFLE(x, zeros, 1, 2, 3, 4, 5, 6, 7, 8);
        x += SHUFFLE(x, zeros, 2, 3, 4, 5, 6, 7, 8, 8);
        x += SHUFFLE(x, zeros, 4, 5, 6, 7, 8, 8, 8, 8);
        lanes all = x + carried;
        carried += SHUFFLE(x, x, 0, 0, 0, 0, 0, 0, 0, 0);
        memcpy(values + k, &all, sizeof all);
    }
}

static ptrdiff_t padded(ptrdiff_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* A row of w, (n + 1), and of p, (n). */
FOR_EACH_CPU
static void vector(const float *restrict x, double scale, ptrdiff_t n, int latitude, float *restrict w, float *restrict p)
{
    double across[CHUNK];
    for (ptrdiff_t begin = 0; begin < n; begin += CHUNK) {
        ptrdiff_t count = n - begin < CHUNK ? n - begin : CHUNK;
        sines(x + begin, count, latitude, w + begin, across);
        for (ptrdiff_t k = count; k < padded(count); k++)
            across[k] = 1.0;
        multiply(across, padded(count), scale);
        w[begin] *= (float)scale;
        for (ptrdiff_t k = 1; k < count; k++)
            w[begin + k] *= (float)across[k - 1];
        for (ptrdiff_t k = 0; k < count; k++)
            p[begin + k] = (float)across[k];
        scale = across[count - 1];
    }
    w[n] = (float)scale;
}

/* A row of the gradient in latitudes, (n); returns <g, w>. */
FOR_EACH_CPU
static double pull_row(
    const float *restrict g, const float *restrict w, const float *restrict p, ptrdiff_t n, float *restrict pull)
{
    double later[CHUNK + 1], sum = (double)g[n] * w[n];
    for (ptrdiff_t begin = (n - 1) / CHUNK * CHUNK; begin >= 0; begin -= CHUNK) {
        ptrdiff_t count = n - begin < CHUNK ? n - begin : CHUNK;
        for (ptrdiff_t k = 0; k < count; k++)
            later[k] = (double)g[begin + k] * w[begin + k];
        for (ptrdiff_t k = count; k < padded(count); k++)
            later[k] = 0.0;
        add_from_right(later, padded(count), sum);
        later[count] = sum;
        for (ptrdiff_t k = 0; k < count; k++)
            pull[begin + k] = g[begin + k] * p[begin + k] - (float)later[k + 1] * (w[begin + k] / p[begin + k]);
        sum = later[0];
    }
    return sum;
}

/* x: (rows, n) latitudes or angles; scale: (rows) or null; w: (rows, n + 1) and p: (rows, n), written. */
void vectors(const float *x, const float *scale, ptrdiff_t rows, ptrdiff_t n, int latitude, float *w, float *p, int most)
{
#pragma omp parallel for num_threads(threads_for(rows * n, most))
    for (ptrdiff_t i = 0; i < rows; i++)
        vector(x + i * n, scale ? scale[i] : 1.0, n, latitude, w + i * (n + 1), p + i * n);
}

/* g: (rows, n + 1), with g_stride numbers from row to row; pull: (rows, n) and inner: (rows), written. No p is 0. */
void pulls(const float *g, ptrdiff_t g_stride, const float *w, const float *p, ptrdiff_t rows, ptrdiff_t n, float *pull,
    float *inner, int most)
{
#pragma omp parallel for num_threads(threads_for(rows * n, most))
    for (ptrdiff_t i = 0; i < rows; i++)
        inner[i] = (float)pull_row(g + i * g_stride, w + i * (n + 1), p + i * n, n, pull + i * n);
}
