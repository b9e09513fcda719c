# CMake learned of WASI later than the version that Debian 12 has; there is nothing to say beyond what the toolchain file says.
set(WASI 1)
