/* The table that the module exports: the parts it was built with. */
#include "spry.h"
#include "voice/sound.h"

#ifdef SPRY_HAVE_SNDFILE
static const struct spry_sound_files files = {
    .open = spry_sound_file_open,
    .open_memory = spry_sound_file_open_memory,
    .close = spry_sound_file_close,
    .read = spry_sound_file_read,
    .status = spry_sound_file_status,
    .open_writer = spry_sound_writer_open,
    .write = spry_sound_writer_write,
    .close_writer = spry_sound_writer_close,
    .convert = spry_sound_convert,
};
#endif

#ifdef SPRY_HAVE_PORTAUDIO
static const struct spry_sound_devices devices = {
    .open = spry_sound_device_open,
    .close = spry_sound_device_close,
    .read = spry_sound_device_read,
    .write = spry_sound_device_write,
};
#endif

SPRY_API extern const spry_voice_libraries spry_voice_module;

const spry_voice_libraries spry_voice_module = {
#ifdef SPRY_HAVE_POCKETSPHINX
    .sphinx = &spry_recogniser_sphinx,
#endif
#ifdef SPRY_HAVE_FLITE
    .flite = &spry_synthesiser_flite,
#endif
#ifdef SPRY_HAVE_SNDFILE
    .files = &files,
#endif
#ifdef SPRY_HAVE_PORTAUDIO
    .devices = &devices,
#endif
};
