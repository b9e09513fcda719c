// webgpu_driver.h: a Vulkan driver for the tests of the GPU where none is set up: SwiftShader from Debian's chromium package
// (software, so it runs anywhere).

#ifndef CARAT_TESTS_WEBGPU_DRIVER_H
#define CARAT_TESTS_WEBGPU_DRIVER_H

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "extent.h"

static inline void use_software_driver(void)
{
    static const char driver[] = "/usr/lib/chromium/vk_swiftshader_icd.json";
    if (getenv("VK_ICD_FILENAMES") != NULL || getenv("VK_DRIVER_FILES") != NULL || access(driver, R_OK) != 0)
        return;
    setenv("VK_ICD_FILENAMES", driver, 1);
    dlopen("/usr/lib/chromium/libvulkan.so.1", RTLD_NOW | RTLD_GLOBAL); // the library that asks for it finds it by its name
}

#endif
