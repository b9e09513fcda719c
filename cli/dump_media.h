// dump_media.h: carat dump image|mel|audio.

#ifndef CARAT_CLI_DUMP_MEDIA_H
#define CARAT_CLI_DUMP_MEDIA_H

#include <stdbool.h>

// True for "image", "mel" and "audio".
bool dump_is_media(const char *what);

// argv[0] is the command's name, argv[1] one of the three.
int dump_media(int argc, char **argv);

#endif
