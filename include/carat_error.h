// carat_error.h: what a failing call of the library says.

#ifndef CARAT_ERROR_H
#define CARAT_ERROR_H

enum carat_code {
    CARAT_OK = 0,
    CARAT_BAD_ARGUMENT, // the caller asked for something impossible
    CARAT_BAD_FILE,     // a file breaks its format
    CARAT_UNSUPPORTED,  // a valid file or request that carat does not handle
    CARAT_NOT_FOUND,    // no such file, model, tensor or key
    CARAT_IO,           // reading, writing or the network failed
    CARAT_NO_MEMORY,    // not enough memory on the host or the device
    CARAT_NO_DEVICE,    // no usable GPU
    CARAT_DEVICE_LOST,  // the GPU went away; the model must be loaded again, the conversation can be kept
    CARAT_CONTEXT_FULL, // the sequence does not fit the context
    CARAT_CANCELLED,    // the caller cancelled
    CARAT_BAD_NUMBER,   // a NaN or an infinity appeared where a number must be
};

enum { CARAT_ERROR_MESSAGE_BYTES = 480 };

struct carat_error {
    enum carat_code code;
    char message[CARAT_ERROR_MESSAGE_BYTES]; // UTF-8, one sentence, always terminated
};

// The code's name, e.g. "bad_file". Never NULL.
const char *carat_code_name(enum carat_code code);

#endif
