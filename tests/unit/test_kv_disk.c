/* The disk cache when all is well: pages survive a restart bit by bit, budget and age are kept, and the pieces it is
 * made of (set of keys, names, the choice between raw and compressed) do what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "kv/kv_disk_state.h"
#include "kv/kv_key.h"
#include "support/disk_pages.h"

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static void pages_survive_a_restart(void **state)
{
    (void)state;
    enum { PAGES = 20 };
    spry_kv_disk *disk = open_plain();
    for (uint64_t i = 0; i < PAGES; i++) {
        assert_false(spry_kv_disk_has(disk, disk_key(i)));
        assert_false(disk_load(disk, i));
        assert_true(disk_store(disk, i));
        assert_true(spry_kv_disk_has(disk, disk_key(i)));
        assert_false(disk_store(disk, i)); /* there already */
        assert_true(disk_load(disk, i));
    }
    spry_kv_disk_close(disk);
    disk = open_plain();
    for (uint64_t i = 0; i < PAGES; i++) {
        assert_true(spry_kv_disk_has(disk, disk_key(i)) && disk_load(disk, i));
    }
    assert_false(spry_kv_disk_has(disk, disk_key(PAGES)));
    spry_kv_disk_figures figures = disk_figures(disk);
    assert_int_equal(figures.files, PAGES);
    assert_int_equal(figures.bytes, PAGES * DISK_FILE_BYTES);
    assert_int_equal(figures.loaded, PAGES);
    assert_int_equal(figures.stored + figures.skipped + figures.removed + figures.load_failures, 0);
    assert_true(figures.load_seconds > 0);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

static void tickets_come_back_once(void **state)
{
    (void)state;
    enum { PAGES = 200 };
    made_page *pages = calloc(PAGES, sizeof *pages);
    assert_non_null(pages);
    uint32_t seen[PAGES] = {0}, tickets[8];
    spry_kv_disk *disk = open_plain();
    size_t taken = 0, refused = 0, back = 0;
    for (uint64_t i = 0; i < PAGES; i++)
        disk_page(&pages[i], i);
    for (uint64_t i = 0; i < PAGES; i++) {
        if (spry_kv_disk_store(disk, &pages[i].page, pages[i].bytes, (uint32_t)i)) {
            taken++;
            assert_false(spry_kv_disk_store(disk, &pages[i].page, pages[i].bytes, (uint32_t)i));
        } else {
            refused++;
        }
    }
    assert_true(taken >= 64 && refused > 0); /* nothing is collected meanwhile, so much waits */
    for (size_t got; (got = spry_kv_disk_collect(disk, tickets, 8, true)); back += got)
        for (size_t i = 0; i < got; i++) {
            assert_true(tickets[i] < PAGES);
            assert_int_equal(seen[tickets[i]]++, 0);
            memset(pages[tickets[i]].bytes, 0xff, DISK_PAGE_BYTES); /* ours again: it is no longer read */
        }
    assert_int_equal(back, taken);
    assert_int_equal(spry_kv_disk_collect(disk, tickets, 8, true), 0); /* nothing under way: no waiting */
    for (uint64_t i = 0; i < PAGES; i++)
        assert_int_equal(disk_load(disk, i), seen[i] == 1);
    assert_int_equal(disk_figures(disk).skipped, refused);
    assert_int_equal(disk_figures(disk).stored, taken);
    spry_kv_disk_close(disk);
    free(pages);
}

static void closing_waits_for_what_was_handed_over(void **state)
{
    (void)state;
    enum { PAGES = 40 };
    made_page *pages = calloc(PAGES, sizeof *pages);
    assert_non_null(pages);
    spry_kv_disk *disk = open_plain();
    for (uint64_t i = 0; i < PAGES; i++) {
        disk_page(&pages[i], i);
        assert_true(spry_kv_disk_store(disk, &pages[i].page, pages[i].bytes, 0));
    }
    spry_kv_disk_close(disk);
    free(pages);
    disk = open_plain();
    for (uint64_t i = 0; i < PAGES; i++)
        assert_true(disk_load(disk, i));
    spry_kv_disk_close(disk);
    spry_kv_disk_close(NULL);
}

/* Several threads read at once; a damaged page and one that is not there fail alone. */
static void several_pages_are_restored_at_once(void **state)
{
    (void)state;
    static made_page pages[SPRY_KV_DISK_LOADS];
    static unsigned char room[SPRY_KV_DISK_LOADS][DISK_PAGE_BYTES];
    enum { DAMAGED = 3, ABSENT = 7 };
    spry_kv_disk_page list[SPRY_KV_DISK_LOADS];
    void *bytes[SPRY_KV_DISK_LOADS];
    bool loaded[SPRY_KV_DISK_LOADS];
    spry_threads *threads;
    assert_int_equal(spry_threads_create(&threads, 3, NULL), SPRY_OK);
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.threads = &threads;
    spry_kv_disk *disk = disk_open(&options);
    for (size_t i = 0; i < SPRY_KV_DISK_LOADS; i++) {
        if (i != ABSENT)
            assert_true(disk_store(disk, i));
        disk_page(&pages[i], i);
        list[i] = pages[i].page;
        bytes[i] = room[i];
    }
    assert_int_equal(truncate(disk_file(&place, options.fingerprint, DAMAGED), DISK_PAGE_BYTES / 2), 0);
    spry_kv_disk_load(disk, loaded, list, bytes, SPRY_KV_DISK_LOADS);
    for (size_t i = 0; i < SPRY_KV_DISK_LOADS; i++) {
        assert_int_equal(loaded[i], i != DAMAGED && i != ABSENT);
        if (loaded[i])
            assert_memory_equal(room[i], pages[i].bytes, DISK_PAGE_BYTES);
    }
    assert_int_equal(disk_figures(disk).loaded, SPRY_KV_DISK_LOADS - 2);
    assert_int_equal(disk_figures(disk).load_failures, 1);
    spry_kv_disk_close(disk);
    spry_threads_destroy(threads);
}

/* Tokens and parent are compared, so neither a collision of keys nor a mistake can restore another text. */
static void another_text_under_the_same_key_is_a_miss(void **state)
{
    (void)state;
    static made_page made;
    static unsigned char bytes[DISK_PAGE_BYTES];
    for (int what = 0; what < 2; what++) {
        spry_kv_disk *disk = open_plain();
        assert_true(disk_store(disk, 1));
        disk_page(&made, 1);
        if (what)
            made.tokens[SPRY_PAGE_TOKENS - 1]++;
        else
            made.page.parent.high ^= 1;
        assert_false(disk_load_page(disk, &made.page, bytes));
        assert_false(spry_kv_disk_has(disk, disk_key(1)));
        assert_int_equal(access(disk_file(&place, disk_key(42424242), 1), F_OK), -1);
        assert_int_equal(disk_figures(disk).load_failures, 1);
        spry_kv_disk_close(disk);
        assert_int_equal(disk_ask(&place, "SELECT count(*) FROM pages"), 0);
    }
}

/* A mover that hands page number `ticket` over once the gate has been opened that far. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t opened;
} gate;

static void open_gate(gate *g, uint32_t opened)
{
    pthread_mutex_lock(&g->lock);
    g->opened = opened;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static const void *read_behind_gate(void *self, uint32_t ticket, void *room)
{
    gate *g = self;
    static made_page made;
    pthread_mutex_lock(&g->lock);
    while (g->opened <= ticket)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    disk_page(&made, ticket);
    return memcpy(room, made.bytes, DISK_PAGE_BYTES);
}

/* A page that is found damaged while the rest of its batch is being written leaves no row behind. */
static void a_page_lost_before_its_batch_is_recorded_has_no_row(void **state)
{
    (void)state;
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    spry_kv_mover mover = {.self = &g, .read = read_behind_gate};
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.mover = &mover;
    static made_page made[3];
    uint32_t tickets[3];
    spry_kv_disk *disk = disk_open(&options);
    for (uint32_t i = 0; i < 3; i++) {
        disk_page(&made[i], i);
        assert_true(spry_kv_disk_store(disk, &made[i].page, NULL, i));
    }
    open_gate(&g, 2); /* page 1 is written, while its batch still waits for page 2 */
    for (size_t got = 0; got < 2;)
        got += spry_kv_disk_collect(disk, tickets, 3, true);
    made[1].page.parent.high ^= 1;
    assert_false(disk_load_page(disk, &made[1].page, made[1].bytes));
    open_gate(&g, 3);
    spry_kv_disk_close(disk);
    assert_int_equal(disk_ask(&place, "SELECT count(*) FROM pages"), 2);
}

static void models_do_not_see_each_other(void **state)
{
    (void)state;
    spry_kv_disk_options options = disk_options(place.folder, &talk), other = options;
    other.fingerprint.low ^= 1;
    spry_kv_disk *disk = disk_open(&options);
    assert_true(disk_store(disk, 1));
    spry_kv_disk_close(disk);
    disk = disk_open(&other);
    assert_false(spry_kv_disk_has(disk, disk_key(1)));
    assert_false(disk_load(disk, 1));
    assert_int_equal(disk_figures(disk).files, 1); /* but they share the folder */
    assert_true(disk_store(disk, 1));
    assert_true(disk_load(disk, 1));
    spry_kv_disk_close(disk);
    disk = disk_open(&options);
    assert_true(disk_load(disk, 1));
    assert_int_equal(disk_figures(disk).files, 2);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

static void folders_are_made(void **state)
{
    (void)state;
    scratch below = {.folder = ""};
    memcpy(below.folder, scratch_path(&place, "a/b"), SCRATCH_PATH);
    const char *path = scratch_path(&below, ""); /* with a slash at its end */
    spry_kv_disk_options options = disk_options(path, &talk);
    spry_kv_disk *disk = disk_open(&options);
    assert_true(disk_store(disk, 1) && disk_load(disk, 1));
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0700);
    spry_kv_disk_close(disk);
    assert_int_equal(stat(disk_file(&below, options.fingerprint, 1), &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    scratch_deinit(&below);
    spry_error error = {0};
    options.folder = place.folder;
    options.page_bytes = 0;
    hostile_expect(spry_kv_disk_open(&disk, &options, &error), &error, SPRY_ERR_INPUT, "0 bytes");
    options.page_bytes = SIZE_MAX;
    hostile_expect(spry_kv_disk_open(&disk, &options, &error), &error, SPRY_ERR_INPUT, "cannot be stored");
    assert_null(disk);
}

/* ---- budget and age --------------------------------------------------------------------------------------------- */

static uint64_t bytes_of_pages(void)
{
    uint64_t total = 0;
    DIR *listing = opendir(place.folder);
    assert_non_null(listing);
    spry_kv_file_id id;
    struct stat facts;
    for (const struct dirent *entry; (entry = readdir(listing));)
        if (spry_kv_file_parse(&id, entry->d_name) && stat(scratch_path(&place, entry->d_name), &facts) == 0)
            total += (uint64_t)facts.st_size;
    closedir(listing);
    return total;
}

static void the_budget_is_never_passed(void **state)
{
    (void)state;
    enum { ROOM = 5, PAGES = 23 };
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.max_bytes = ROOM * DISK_FILE_BYTES + 1000;
    spry_kv_disk *disk = disk_open(&options);
    for (uint64_t i = 0; i < PAGES; i++) {
        assert_true(disk_store(disk, i));
        assert_true(bytes_of_pages() <= options.max_bytes);
        assert_true(disk_load(disk, i));
    }
    spry_kv_disk_close(disk);
    disk = disk_open(&options);
    assert_int_equal(disk_figures(disk).files, ROOM);
    assert_int_equal(disk_figures(disk).bytes, bytes_of_pages());
    size_t there = 0;
    for (uint64_t i = 0; i < PAGES; i++)
        there += disk_load(disk, i);
    assert_int_equal(there, ROOM);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
    options.max_bytes = 2 * DISK_FILE_BYTES; /* less than before: made to fit */
    spry_kv_disk_close(disk_open(&options));
    assert_int_equal(bytes_of_pages(), 2 * DISK_FILE_BYTES);
}

/* The least recently used are evicted, of any model; of pages used in the same minute the last stored. */
static void old_pages_make_room(void **state)
{
    (void)state;
    spry_kv_disk_options options = disk_options(place.folder, &talk), other = options;
    other.fingerprint.high ^= 1;
    options.max_bytes = other.max_bytes = 6 * DISK_FILE_BYTES;
    spry_kv_disk *disk = disk_open(&other);
    for (uint64_t i = 10; i < 12; i++)
        assert_true(disk_store(disk, i));
    spry_kv_disk_close(disk);
    disk = disk_open(&options);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(disk_store(disk, i));
    spry_kv_disk_close(disk);
    static const long long ages[] = {-900, -500, -700, -800};
    for (uint64_t i = 0; i < 4; i++)
        disk_age(&place, i, ages[i]);
    disk_age(&place, 10, -1000);
    disk_age(&place, 11, -600);
    disk = disk_open(&options);
    assert_true(disk_load(disk, 3)); /* now it is new */
    spry_kv_disk_close(disk);
    assert_true(disk_ask(&place, "SELECT strftime('%s', 'now') - max(used) FROM pages") < 70);
    /* oldest first: 10, 0, 2, 11, 1, 3 */
    static const uint64_t order[] = {10, 0, 2, 11, 1, 3};
    for (size_t gone = 1; gone <= 3; gone++) {
        disk = disk_open(&options);
        assert_true(disk_store(disk, 20 + gone));
        assert_int_equal(disk_figures(disk).removed, 1);
        for (size_t i = 0; i < 6; i++) {
            spry_kv_key owner = order[i] >= 10 ? other.fingerprint : options.fingerprint;
            assert_int_equal(access(disk_file(&place, owner, order[i]), F_OK) == 0, i >= gone);
        }
        assert_int_equal(spry_kv_disk_has(disk, disk_key(2)), gone < 3);
        spry_kv_disk_close(disk);
    }
    disk_sql(&place, "UPDATE pages SET used = 1800000000 WHERE 1");
    disk = disk_open(&options);
    assert_true(disk_store(disk, 30));
    spry_kv_disk_close(disk);
    assert_int_equal(access(disk_file(&place, options.fingerprint, 23), F_OK), -1);
    assert_int_equal(access(disk_file(&place, options.fingerprint, 1), F_OK), 0);
}

static void unused_pages_expire(void **state)
{
    (void)state;
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.ttl_seconds = 3600;
    spry_kv_disk *disk = disk_open(&options);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(disk_store(disk, i));
    spry_kv_disk_close(disk);
    disk_age(&place, 0, -3600 * 2);
    disk_age(&place, 1, -3600 / 2);
    disk_age(&place, 2, 3600LL * 24 * 365 * 50); /* the clock was wrong then */
    disk_age(&place, 3, -3600LL * 24 * 365 * 50);
    spry_kv_disk_close(disk_open(&options));
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(access(disk_file(&place, options.fingerprint, i), F_OK) == 0, i == 1 || i == 2);
    assert_int_equal(disk_ask(&place, "SELECT max(used) > CAST(strftime('%s', 'now') AS INTEGER) FROM pages"), 0);
    options.ttl_seconds = UINT64_MAX;
    disk = disk_open(&options);
    assert_true(disk_load(disk, 1) && disk_load(disk, 2));
    spry_kv_disk_close(disk);
}

static void a_budget_below_one_page_stores_nothing(void **state)
{
    (void)state;
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.max_bytes = DISK_FILE_BYTES - 1;
    spry_kv_disk *disk = disk_open(&options);
    assert_false(disk_store(disk, 1));
    assert_false(disk_store(disk, 2));
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 1);
    assert_non_null(strstr(talk.last, "nothing is stored"));
    options.max_bytes++;
    disk = disk_open(&options);
    assert_true(disk_store(disk, 1) && disk_store(disk, 2) && disk_load(disk, 2));
    assert_false(disk_load(disk, 1));
    spry_kv_disk_close(disk);
}

/* ---- compression ------------------------------------------------------------------------------------------------ */

static void compressed_pages_are_restored(void **state)
{
    (void)state;
    static made_page made;
    static unsigned char frame[2 * DISK_PAGE_BYTES], bytes[DISK_PAGE_BYTES];
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    spry_directory directory;
    assert_int_equal(spry_directory_open(&directory, place.folder, NULL), SPRY_OK);
    for (uint64_t i = 0; i < 5; i++) {
        disk_page(&made, i);
        memset(made.bytes, (int)i, DISK_PAGE_BYTES / 2);
        size_t size = ZSTD_compress(frame, sizeof frame, made.bytes, DISK_PAGE_BYTES, 1);
        assert_true(!ZSTD_isError(size) && size < DISK_PAGE_BYTES);
        spry_kv_file_body body = {made.bytes, DISK_PAGE_BYTES, frame, size};
        assert_int_equal(spry_kv_file_write(&directory, options.fingerprint, &made.page, &body), 0);
    }
    spry_directory_close(&directory);
    spry_kv_disk *disk = disk_open(&options);
    for (uint64_t i = 0; i < 5; i++) {
        disk_page(&made, i);
        memset(made.bytes, (int)i, DISK_PAGE_BYTES / 2);
        assert_true(disk_load_page(disk, &made.page, bytes));
        assert_memory_equal(bytes, made.bytes, DISK_PAGE_BYTES);
    }
    assert_true(disk_figures(disk).bytes < 5 * DISK_FILE_BYTES);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

static void the_faster_way_is_chosen(void **state)
{
    (void)state;
    static const struct {
        double read_ns, unpack_ns, ratio; /* for 1,000 bytes */
        bool packs;
    } cases[] = {
        {6667, 600, 0.80, true},   /* 150 MB/s, a hard disk */
        {6667, 1400, 0.80, false}, /* unpacking takes what reading saves */
        {300, 700, 0.50, false},   /* a fast disk */
        {2000, 700, 0.50, true},   /* a slow one, pages that shrink */
        {2000, 700, 0.60, false},  /* 1,900 for 2,000 is not worth it */
        {6667, 0, 1.00, false},    /* pages that do not shrink */
    };
    assert_false(spry_kv_pace_packs(&(spry_kv_pace){0}));
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_kv_pace pace = {0};
        spry_kv_pace_read(&pace, 1000, (uint64_t)cases[i].read_ns);
        assert_false(spry_kv_pace_packs(&pace));
        spry_kv_pace_unpack(&pace, 1000, (uint64_t)(1000 * cases[i].ratio), (uint64_t)cases[i].unpack_ns);
        assert_int_equal(spry_kv_pace_packs(&pace), cases[i].packs);
        for (int again = 0; again < 40; again++) /* the disk became something else */
            spry_kv_pace_read(&pace, 1000, cases[i].packs ? 300 : 60000);
        assert_int_equal(spry_kv_pace_packs(&pace), !cases[i].packs && cases[i].ratio < 1);
    }
    spry_kv_pace pace = {0};
    size_t probes = 0;
    for (int i = 0; i < 2 * SPRY_KV_PACE_EVERY; i++)
        probes += spry_kv_pace_probes(&pace);
    assert_int_equal(probes, SPRY_KV_PACE_FIRST + 1);
}

/* ---- names and keys --------------------------------------------------------------------------------------------- */

static void names_are_read_back_strictly(void **state)
{
    (void)state;
    char name[SPRY_KV_FILE_NAME], wrong[SPRY_KV_FILE_NAME + 2];
    spry_kv_file_id id = {disk_key(1), {0, 0xabcdef}}, back;
    spry_kv_file_name(name, &id);
    assert_true(spry_kv_file_parse(&back, name));
    assert_true(spry_kv_key_equal(back.key, id.key) && spry_kv_key_equal(back.fingerprint, id.fingerprint));
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        memcpy(wrong, name, length + 1);
        wrong[i] = 'G';
        assert_false(spry_kv_file_parse(&back, wrong));
        wrong[i] = 0;
        assert_false(spry_kv_file_parse(&back, wrong));
    }
    snprintf(wrong, sizeof wrong, "%s~", name);
    assert_false(spry_kv_file_parse(&back, wrong));
}

static void the_set_of_keys_is_a_set(void **state)
{
    (void)state;
    enum { KEYS = 4000, STEPS = 60000 };
    static uint8_t naive[KEYS];
    uint64_t random = 5;
    size_t count = 0;
    spry_kv_keys keys;
    spry_kv_keys_init(&keys);
    assert_int_equal(spry_kv_keys_find(&keys, disk_key(0)), 0);
    spry_kv_keys_remove(&keys, disk_key(0));
    for (int step = 0; step < STEPS; step++) {
        uint64_t number = hostile_random(&random) % KEYS;
        uint8_t mark = (uint8_t)(hostile_random(&random) % 4);
        count = count + (mark && !naive[number]) - (!mark && naive[number]);
        naive[number] = mark;
        if (mark)
            assert_true(spry_kv_keys_put(&keys, disk_key(number), mark));
        else
            spry_kv_keys_remove(&keys, disk_key(number));
        assert_int_equal(keys.count, count);
        number = hostile_random(&random) % KEYS;
        assert_int_equal(spry_kv_keys_find(&keys, disk_key(number)), naive[number]);
    }
    for (uint64_t i = 0; i < KEYS; i++)
        assert_int_equal(spry_kv_keys_find(&keys, disk_key(i)), naive[i]);
    spry_kv_keys_deinit(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DISK_TEST(pages_survive_a_restart),
        DISK_TEST(several_pages_are_restored_at_once),
        DISK_TEST(tickets_come_back_once),
        DISK_TEST(closing_waits_for_what_was_handed_over),
        DISK_TEST(another_text_under_the_same_key_is_a_miss),
        DISK_TEST(a_page_lost_before_its_batch_is_recorded_has_no_row),
        DISK_TEST(models_do_not_see_each_other),
        DISK_TEST(folders_are_made),
        DISK_TEST(the_budget_is_never_passed),
        DISK_TEST(old_pages_make_room),
        DISK_TEST(unused_pages_expire),
        DISK_TEST(a_budget_below_one_page_stores_nothing),
        DISK_TEST(compressed_pages_are_restored),
        DISK_TEST(the_faster_way_is_chosen),
        DISK_TEST(names_are_read_back_strictly),
        DISK_TEST(the_set_of_keys_is_a_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
