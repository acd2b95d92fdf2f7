/* The table that the module exports: the parts it was built with. */
#include "spry.h"
#include "voice/sound.h"

#ifdef SPRY_HAVE_SNDFILE
extern const spry_sound_decoder spry_sound_decoder_sndfile;
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
    .decoder = &spry_sound_decoder_sndfile,
#endif
#ifdef SPRY_HAVE_PORTAUDIO
    .devices = &devices,
#endif
};
