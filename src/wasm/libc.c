// libc.c: what wasi-libc would import from the system. The library opens no files and prints nothing in WebAssembly, but the
// libc's formatting brings its streams along; they lead nowhere here, so that the module needs no imports beyond carat's own.

#include <errno.h>
#include <stdint.h>

int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t fd);
int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t fd)
{
    (void)fd;
    return ENOSYS;
}

int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t fd, int64_t offset, int32_t whence, int32_t position);
int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t fd, int64_t offset, int32_t whence, int32_t position)
{
    (void)fd, (void)offset, (void)whence, (void)position;
    return ENOSYS;
}

int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t fd, int32_t pieces, int32_t n_pieces, int32_t n_written);
int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t fd, int32_t pieces, int32_t n_pieces, int32_t n_written)
{
    (void)fd, (void)pieces, (void)n_pieces, (void)n_written;
    return ENOSYS;
}

// getenv finds nothing.
int32_t __imported_wasi_snapshot_preview1_environ_sizes_get(uint32_t *n_variables, uint32_t *n_bytes);
int32_t __imported_wasi_snapshot_preview1_environ_sizes_get(uint32_t *n_variables, uint32_t *n_bytes)
{
    *n_variables = 0;
    *n_bytes = 0;
    return 0;
}

int32_t __imported_wasi_snapshot_preview1_environ_get(int32_t variables, int32_t bytes);
int32_t __imported_wasi_snapshot_preview1_environ_get(int32_t variables, int32_t bytes)
{
    (void)variables, (void)bytes;
    return 0;
}

_Noreturn void __imported_wasi_snapshot_preview1_proc_exit(int32_t code);
_Noreturn void __imported_wasi_snapshot_preview1_proc_exit(int32_t code)
{
    (void)code;
    __builtin_trap();
}
