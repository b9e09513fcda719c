// kernel_texts.h: the *.wgsl files of this folder as strings (made by embed.cmake).

#ifndef CARAT_WEBGPU_KERNEL_TEXTS_H
#define CARAT_WEBGPU_KERNEL_TEXTS_H

struct kernel_text {
    const char *name; // file name without .wgsl
    const char *text;
};

extern const struct kernel_text kernel_texts[]; // the last one has a NULL name

#endif
