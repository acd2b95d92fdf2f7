/* Requests with libcurl, and pulls of a single file from a URL. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/map.h"
#include "base/number.h"
#include "pull/pull_http.h"
#include "pull/pull_state.h"

enum { REDIRECTS = 10, CONNECT_S = 30, SILENT_S = 60, WAIT_MS = 200, WAIT_MOST_MS = 10000, RETRY_AFTER_MOST_S = 60 };

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void spry_http_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
}

/* A libcurl that is linked in was told nothing of the system's certificates: where distributions store them. */
static void use_certificates(CURL *curl)
{
#ifdef SPRY_CERTIFICATES
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < SPRY_COUNT(places); i++)
        if (access(places[i], R_OK) == 0) {
            curl_easy_setopt(curl, CURLOPT_CAINFO, places[i]);
            return;
        }
#else
    (void)curl;
#endif
}

void spry_http_prepare(CURL *curl, struct curl_slist **headers, const char *url, const char *bearer)
{
    bool safe = strncasecmp(url, "https:", 6) == 0;
    char line[512];
    use_certificates(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "spry/" SPRY_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_S);
    if (bearer && snprintf(line, sizeof line, "Authorization: Bearer %s", bearer) < (int)sizeof line)
        *headers = curl_slist_append(*headers, line);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
}

const char *spry_http_header(CURL *curl, const char *name)
{
    struct curl_header *found;
    return curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : NULL;
}

bool spry_http_passes(CURLcode code)
{
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT ||
           code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM || code == CURLE_SSL_CONNECT_ERROR;
}

bool spry_http_status_passes(long status)
{
    return status == 408 || status == 429 || status >= 500;
}

uint64_t spry_http_wait_ms(CURL *curl, int tries)
{
    const char *after = spry_http_header(curl, "Retry-After");
    unsigned long seconds = after ? strtoul(after, NULL, 10) : 0;
    if (seconds)
        return 1000 * (uint64_t)(seconds < RETRY_AFTER_MOST_S ? seconds : RETRY_AFTER_MOST_S);
    uint64_t wait = (uint64_t)WAIT_MS << (tries < 8 ? tries : 8);
    return wait < WAIT_MOST_MS ? wait : WAIT_MOST_MS;
}

spry_status spry_http_refused(const char *what, long status, bool has_token, spry_error *error)
{
    if (status == 401 || status == 403)
        return spry_fail(
            error, SPRY_ERR_FILE,
            "%.200s: the server responded with status %ld: the model is private, gated or does not exist; %s", what,
            status, has_token ? "the token in HF_TOKEN may not read it" : "HF_TOKEN can hold a token that may read it");
    if (status == 404)
        return spry_fail(error, SPRY_ERR_FILE,
                         "%.200s: the server responded with status 404: there is no such model or file", what);
    return spry_fail(error, SPRY_ERR_FILE, "%.200s: the server responded with status %ld%s", what, status,
                     status == 429 ? ": too many requests" : "");
}

/* ---- one file from a URL ----------------------------------------------------------------------------------------- */

/* Downloads a GGUF file from an http(s) URL with libcurl.
 *
 * A record beside the unfinished file stores its URL and the server's version of the file (its ETag or last
 * modification). The rest is requested with If-Range: if the file has changed, the server sends it from the beginning.
 * A broken connection is retried as long as every few tries make progress. */

enum {
    VERSION_BYTES = 256,
    RECORD_BYTES = VERSION_BYTES + 32,
    TRIES = 4, /* consecutive tries without progress */
    TRIES_TOGETHER = 100,
    NAP_MS = 100,
    NAPS_A_TRY = 5,
};

typedef struct web {
    spry_model_pull *pull;
    CURL *curl;
    int part;
    char version[VERSION_BYTES]; /* the file's version, for If-Range; empty: the server gave none */
    char reason[CURL_ERROR_SIZE];
    uint64_t furthest; /* largest number of bytes reached */
    bool begun;        /* the response header was processed */
    bool again;        /* the failure may be temporary */
    spry_status status;
    spry_error *error;
} web;

/* ---- addresses --------------------------------------------------------------------------------------------------- */

spry_status spry_pull_url_path(spry_buffer *path, const char *url, spry_error *error)
{
    spry_http_init();
    char *text = NULL;
    CURLU *parsed = curl_url();
    CURLUcode code = parsed ? curl_url_set(parsed, CURLUPART_URL, url, 0) : CURLUE_OUT_OF_MEMORY;
    if (code == CURLUE_OK)
        code = curl_url_get(parsed, CURLUPART_PATH, &text, CURLU_URLDECODE);
    if (code == CURLUE_OK && !spry_buffer_text(path, text))
        code = CURLUE_OUT_OF_MEMORY;
    curl_free(text);
    curl_url_cleanup(parsed);
    return code == CURLUE_OK
               ? SPRY_OK
               : spry_fail(error, SPRY_ERR_INPUT, "%.200s: not a valid URL: %s", url, curl_url_strerror(code));
}

/* ---- the note ---------------------------------------------------------------------------------------------------- */

static void note_name(char out[SPRY_PULL_NAME_BYTES], const spry_model_pull *pull)
{
    snprintf(out, SPRY_PULL_NAME_BYTES, ".%s.gguf.from", pull->name);
}

/* URLs may contain passwords, so only a hash is stored. */
static int print_record(char out[RECORD_BYTES], const web *w)
{
    uint64_t hash = spry_hash_bytes(w->pull->source, strlen(w->pull->source), 0);
    return snprintf(out, RECORD_BYTES, "%016" PRIx64 " %s", hash, w->version);
}

/* Without a record the next pull starts again, so a failure is ignored. */
static void write_record(const web *w)
{
    char name[SPRY_PULL_NAME_BYTES], note[RECORD_BYTES];
    note_name(name, w->pull);
    struct iovec piece = {note, (size_t)print_record(note, w)};
    spry_directory_write(&w->pull->folder, name, &piece, 1);
}

/* Reads the record of the unfinished file if it has the same URL. */
static void read_record(web *w)
{
    char name[SPRY_PULL_NAME_BYTES], note[RECORD_BYTES], same[RECORD_BYTES];
    spry_opened file;
    note_name(name, w->pull);
    size_t start = (size_t)print_record(same, w); /* without a version yet: the hash and a space */
    if (spry_opened_open(&file, &w->pull->folder, name) != 0)
        return;
    struct iovec piece = {note, (size_t)file.size};
    if (file.size > start && file.size < RECORD_BYTES && spry_opened_read(&file, &piece, 1, 0) == 0 &&
        memcmp(note, same, start) == 0)
        snprintf(w->version, sizeof w->version, "%.*s", (int)(file.size - start), note + start);
    spry_opened_close(&file);
}

static void remove_note(const web *w)
{
    char name[SPRY_PULL_NAME_BYTES];
    note_name(name, w->pull);
    spry_directory_remove(&w->pull->folder, name);
}

/* ---- an answer's head -------------------------------------------------------------------------------------------- */

/* If-Range accepts no weak tags. */
static void take_version(web *w)
{
    const char *version = spry_http_header(w->curl, "ETag");
    if (!version || strncmp(version, "W/", 2) == 0)
        version = spry_http_header(w->curl, "Last-Modified");
    bool fits = version && strlen(version) < sizeof w->version;
    snprintf(w->version, sizeof w->version, "%s", fits ? version : "");
}

static spry_status start_over(web *w)
{
    w->pull->done = 0;
    if (ftruncate(w->part, 0) == 0 && lseek(w->part, 0, SEEK_SET) == 0)
        return SPRY_OK;
    return spry_fail(w->error, SPRY_ERR_FILE, "cannot write '%s': %s", w->pull->part, strerror(errno));
}

static spry_status take_whole(web *w)
{
    curl_off_t length = -1;
    curl_easy_getinfo(w->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length < 0)
        return spry_fail(w->error, SPRY_ERR_FORMAT, "%.200s: the server does not report the size of the file",
                         w->pull->source);
    w->pull->total = (uint64_t)length;
    spry_status status = start_over(w);
    take_version(w);
    write_record(w);
    return status;
}

/* "bytes 100-199/200" must continue where the unfinished file ends, up to the end. */
static spry_status take_rest(web *w)
{
    const char *range = spry_http_header(w->curl, "Content-Range");
    uint64_t begin = 0, last = 0, total = 0;
    const char *dash = range ? strchr(range, '-') : NULL, *slash = dash ? strchr(dash, '/') : NULL;
    if (slash && strncasecmp(range, "bytes ", 6) == 0 &&
        spry_number_u64(&begin, (spry_view){range + 6, (size_t)(dash - range - 6)}) &&
        spry_number_u64(&last, (spry_view){dash + 1, (size_t)(slash - dash - 1)}) &&
        spry_number_u64(&total, spry_view_of(slash + 1)) && begin == w->pull->done && last < total &&
        last + 1 == total) {
        w->pull->total = total;
        return SPRY_OK;
    }
    remove_note(w);
    w->version[0] = '\0';
    w->again = true;
    return spry_fail(w->error, SPRY_ERR_FORMAT, "%.200s: the server sent another range than requested",
                     w->pull->source);
}

static spry_status look_at_head(web *w)
{
    long code = 0;
    spry_status status;
    w->begun = true;
    curl_easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code == 200) {
        status = take_whole(w);
    } else if (code == 206 && w->pull->done) {
        status = take_rest(w);
    } else {
        if (code == 416)
            w->version[0] = '\0';
        w->again = code == 416 || (w->pull->done && (code == 429 || code >= 500));
        return spry_fail(w->error, SPRY_ERR_FILE, "%.200s: the server responded with status %ld", w->pull->source,
                         code);
    }
    return status == SPRY_OK ? spry_pull_check_room(w->pull, w->pull->total - w->pull->done, w->error) : status;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    web *w = user;
    (void)one;
    if (!w->begun)
        w->status = look_at_head(w);
    if (w->status == SPRY_OK && size > w->pull->total - w->pull->done)
        w->status =
            spry_fail(w->error, SPRY_ERR_FORMAT, "%.200s: the server sent more bytes than announced", w->pull->source);
    bool checked = w->pull->done >= 4;
    if (w->status == SPRY_OK)
        w->status = spry_pull_write(w->pull, w->part, data, size, w->error);
    if (w->status == SPRY_OK && !checked && w->pull->done >= 4)
        w->status = spry_pull_check_gguf(w->pull, w->part, w->error);
    return w->status == SPRY_OK ? size : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    web *w = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (w->status == SPRY_OK)
        w->status = spry_pull_report(w->pull, w->error);
    return w->status != SPRY_OK;
}

static void set_options(web *w, struct curl_slist **headers)
{
    CURL *curl = w->curl;
    spry_http_prepare(curl, headers, w->pull->source, NULL);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, w->reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, w);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

static spry_status judge(web *w, CURLcode code)
{
    bool empty = code == CURLE_OK && !w->begun;
    if (empty && w->status == SPRY_OK)
        w->status = look_at_head(w);
    if (w->status != SPRY_OK)
        return w->status;
    if (empty)
        return spry_fail(w->error, SPRY_ERR_FORMAT, "%.200s: the file is empty", w->pull->source);
    if (code == CURLE_OK && w->pull->done == w->pull->total)
        return SPRY_OK;
    w->again = (w->furthest || w->pull->done) && (code == CURLE_OK || spry_http_passes(code));
    return spry_fail(w->error, SPRY_ERR_FILE, "%.200s: %s", w->pull->source,
                     w->reason[0] ? w->reason : curl_easy_strerror(code));
}

/* One request. Bytes already present are not requested again if the server confirms that the file is unchanged. */
static spry_status ask(web *w)
{
    char range[32], condition[VERSION_BYTES + 16];
    struct curl_slist *headers = NULL;
    w->begun = w->again = false;
    w->status = SPRY_OK;
    w->reason[0] = '\0';
    if (!w->version[0] && (w->status = start_over(w)) != SPRY_OK)
        return w->status;
    w->curl = curl_easy_init();
    if (!w->curl)
        return spry_fail_memory(w->error, "a download", 0);
    if (w->pull->done) {
        snprintf(range, sizeof range, "%" PRIu64 "-", w->pull->done);
        snprintf(condition, sizeof condition, "If-Range: %s", w->version);
        headers = curl_slist_append(NULL, condition);
        curl_easy_setopt(w->curl, CURLOPT_RANGE, range);
    }
    set_options(w, &headers);
    spry_status status = judge(w, curl_easy_perform(w->curl));
    curl_slist_free_all(headers);
    curl_easy_cleanup(w->curl);
    return status;
}

static spry_status wait_before(web *w, int tries)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    spry_status status = SPRY_OK;
    for (int i = 0; i < tries * NAPS_A_TRY && status == SPRY_OK; i++) {
        nanosleep(&nap, NULL);
        status = spry_pull_report(w->pull, w->error);
    }
    return status;
}

static spry_status ask_until_whole(web *w)
{
    int tries = 0;
    for (int together = 1;; together++) {
        spry_status status = ask(w);
        bool further = w->pull->done > w->furthest;
        if (further)
            w->furthest = w->pull->done;
        tries = further ? 0 : tries + 1;
        if (status == SPRY_OK || !w->again || tries == TRIES || together == TRIES_TOGETHER)
            return status;
        status = wait_before(w, tries);
        if (status != SPRY_OK)
            return status;
    }
}

spry_status spry_pull_download(spry_model_pull *pull, spry_error *error)
{
    web w = {.pull = pull, .error = error};
    spry_http_init();
    spry_status status = spry_pull_lock(pull, &w.part, error);
    if (status != SPRY_OK)
        return status;
    read_record(&w);
    off_t there = lseek(w.part, 0, SEEK_END);
    pull->done = there > 0 ? (uint64_t)there : 0;
    w.furthest = pull->done;
    status = ask_until_whole(&w);
    if (status == SPRY_OK)
        status = spry_pull_check_gguf(pull, w.part, error);
    if (status == SPRY_OK)
        status = spry_pull_publish(pull, w.part, error);
    /* Remove data that the next pull cannot use. */
    if (status != SPRY_OK && (!pull->done || !w.version[0] || status == SPRY_ERR_FORMAT)) {
        spry_directory_remove(&pull->folder, pull->part);
        remove_note(&w);
    }
    if (status == SPRY_OK)
        remove_note(&w);
    close(w.part);
    return status;
}
