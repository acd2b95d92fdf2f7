#include "server/http/key_limits.h"

#include <math.h>
#include <stdlib.h>

#define MINUTE_NS 60e9

bool spry_key_limits_init(spry_key_limits *limits, size_t count)
{
    *limits = (spry_key_limits){.count = count, .use = calloc(count, sizeof *limits->use)};
    pthread_mutex_init(&limits->lock, NULL);
    return limits->use != NULL;
}

void spry_key_limits_deinit(spry_key_limits *limits)
{
    free(limits->use);
    limits->use = NULL;
    pthread_mutex_destroy(&limits->lock);
}

static double refilled(double used, uint32_t rate, double minutes)
{
    double left = used - rate * minutes;
    return rate && left > 0 ? left : 0;
}

/* Seconds until `used` has fallen to `most`, at least 1. */
static uint32_t seconds_until(double used, double most, uint32_t rate)
{
    double seconds = ceil((used - most) / rate * 60);
    return seconds > 1 ? (uint32_t)(seconds < 1e9 ? seconds : 1e9) : 1;
}

/* Under the lock. */
static const char *refusal(const spry_key_use *use, const spry_key_rates *rates, uint32_t *retry_s)
{
    *retry_s = 1;
    if (rates->concurrent && use->open >= rates->concurrent)
        return "requests at a time";
    if (rates->requests && use->requests > rates->requests - 1) {
        *retry_s = seconds_until(use->requests, rates->requests - 1.0, rates->requests);
        return "requests a minute";
    }
    if (rates->tokens && use->tokens >= rates->tokens) {
        *retry_s = seconds_until(use->tokens, rates->tokens, rates->tokens);
        return "tokens a minute";
    }
    return NULL;
}

const char *spry_key_limits_begin(spry_key_limits *limits, size_t key, const spry_key_rates *rates, uint64_t now_ns,
                                  uint32_t *retry_s)
{
    spry_key_use *use = &limits->use[key];
    pthread_mutex_lock(&limits->lock);
    double minutes = now_ns > use->at_ns ? (double)(now_ns - use->at_ns) / MINUTE_NS : 0;
    use->requests = refilled(use->requests, rates->requests, minutes);
    use->tokens = refilled(use->tokens, rates->tokens, minutes);
    use->at_ns = now_ns > use->at_ns ? now_ns : use->at_ns;
    const char *limit = refusal(use, rates, retry_s);
    if (!limit) {
        use->requests++;
        use->open++;
    }
    pthread_mutex_unlock(&limits->lock);
    return limit;
}

void spry_key_limits_end(spry_key_limits *limits, size_t key)
{
    pthread_mutex_lock(&limits->lock);
    limits->use[key].open--;
    pthread_mutex_unlock(&limits->lock);
}

void spry_key_limits_charge(spry_key_limits *limits, size_t key, size_t tokens)
{
    pthread_mutex_lock(&limits->lock);
    limits->use[key].tokens += (double)tokens;
    pthread_mutex_unlock(&limits->lock);
}
