/* The program's side of the module: calls go to the functions that it exports. An object exists only after its part was
 * found. */
#include "voice/voice_libraries.h"

#include <pthread.h>

#include "platform/environment.h"

static const spry_voice_libraries none, *libraries = &none;

static void open_module(void)
{
    const spry_voice_libraries *found = spry_module_symbol("spry_voice", "spry_voice_module", NULL);
    if (found)
        libraries = found;
}

const spry_voice_libraries *spry_voice_libraries_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return libraries;
}

/* ---- sound files ------------------------------------------------------------------------------------------------- */

static const struct spry_sound_files *files(spry_error *error)
{
    const struct spry_sound_files *found = spry_voice_libraries_get()->files;
    if (!found)
        spry_fail(error, SPRY_ERR_UNSUPPORTED,
                  "spry_voice.so is not there, or was built without libsndfile and libsamplerate: sound files can "
                  "neither be read nor written");
    return found;
}

spry_status spry_sound_file_open(spry_sound_file **out, const char *path, spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open(out, path, error) : SPRY_ERR_UNSUPPORTED;
}

spry_status spry_sound_file_open_memory(spry_sound_file **out, const void *data, size_t size, const char *name,
                                        spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open_memory(out, data, size, name, error) : SPRY_ERR_UNSUPPORTED;
}

void spry_sound_file_close(spry_sound_file *file)
{
    if (file)
        libraries->files->close(file);
}

size_t spry_sound_file_read(void *file, float *samples, size_t count)
{
    return libraries->files->read(file, samples, count);
}

spry_status spry_sound_file_status(const spry_sound_file *file, spry_error *error)
{
    return libraries->files->status(file, error);
}

spry_status spry_sound_writer_open(spry_sound_writer **out, const char *path, spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open_writer(out, path, error) : SPRY_ERR_UNSUPPORTED;
}

spry_status spry_sound_writer_write(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error)
{
    return libraries->files->write(writer, samples, count, error);
}

spry_status spry_sound_writer_close(spry_sound_writer *writer, spry_error *error)
{
    return writer ? libraries->files->close_writer(writer, error) : SPRY_OK;
}

spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error)
{
    *out = NULL;
    *n_out = 0;
    return files(error) ? libraries->files->convert(out, n_out, samples, count, rate, error) : SPRY_ERR_UNSUPPORTED;
}

/* ---- microphone and loudspeaker ---------------------------------------------------------------------------------- */

spry_status spry_sound_device_open(spry_sound_device **out, bool loudspeaker, spry_error *error)
{
    *out = NULL;
    if (!spry_voice_libraries_get()->devices)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "spry_voice.so is not there, or was built without PortAudio: there is no microphone; --in "
                         "takes a sound file");
    return libraries->devices->open(out, loudspeaker, error);
}

void spry_sound_device_close(spry_sound_device *device)
{
    if (device)
        libraries->devices->close(device);
}

spry_status spry_sound_device_read(spry_sound_device *device, int16_t *samples, size_t count, spry_error *error)
{
    return libraries->devices->read(device, samples, count, error);
}

spry_status spry_sound_device_write(spry_sound_device *device, const int16_t *samples, size_t count, spry_error *error)
{
    return libraries->devices->write(device, samples, count, error);
}
