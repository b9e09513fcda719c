"""llama.cpp's library of pictures and sounds (mtmd), called through the shared object of the PyPI package xllamacpp.

Only opaque pointers and numbers pass through here. Two structures go by value whose fields change from version to version: they are
taken from the library's own defaults as blocks that are large enough, and handed back as they are.
"""
import ctypes as c
import glob

import numpy as np
import xllamacpp

VERSION = xllamacpp.__version__
MARKER = "<__media__>"
TEXT, IMAGE, AUDIO = range(3)


class Block(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * 1024)]


class Prompt(c.Structure):
    _fields_ = [("text", c.c_char_p), ("n_text", c.c_size_t), ("add_special", c.c_bool), ("parse_special", c.c_bool)]


library = c.CDLL(glob.glob(xllamacpp.__path__[0] + "/xllamacpp*.so")[0])


def function(name, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


model_defaults = function("llama_model_default_params", Block)
model_load = function("llama_model_load_from_file", c.c_void_p, c.c_char_p, Block)
context_defaults = function("mtmd_context_params_default", Block)
context_open = function("mtmd_init_from_file", c.c_void_p, c.c_char_p, c.c_void_p, Block)
bitmap_of_pixels = function("mtmd_bitmap_init", c.c_void_p, c.c_uint32, c.c_uint32, c.c_void_p)
bitmap_of_samples = function("mtmd_bitmap_init_from_audio", c.c_void_p, c.c_size_t, c.c_void_p)
bitmap_free = function("mtmd_bitmap_free", None, c.c_void_p)
chunks_new = function("mtmd_input_chunks_init", c.c_void_p)
chunks_free = function("mtmd_input_chunks_free", None, c.c_void_p)
chunks_size = function("mtmd_input_chunks_size", c.c_size_t, c.c_void_p)
chunks_get = function("mtmd_input_chunks_get", c.c_void_p, c.c_void_p, c.c_size_t)
chunk_type = function("mtmd_input_chunk_get_type", c.c_int, c.c_void_p)
chunk_tokens = function("mtmd_input_chunk_get_n_tokens", c.c_size_t, c.c_void_p)
chunk_text = function("mtmd_input_chunk_get_tokens_text", c.POINTER(c.c_int32), c.c_void_p, c.POINTER(c.c_size_t))
tokenize = function("mtmd_tokenize", c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
encode = function("mtmd_encode_chunk", c.c_int32, c.c_void_p, c.c_void_p)
output = function("mtmd_get_output_embd", c.POINTER(c.c_float), c.c_void_p)


class Towers:
    def __init__(self, text_path, projector_path, width):
        self.width = width
        function("llama_backend_init", None)()
        model = model_load(text_path.encode(), model_defaults())
        self.context = context_open(projector_path.encode(), model, context_defaults()) if model else None
        if not self.context:
            raise RuntimeError(f"llama.cpp does not open {text_path} with {projector_path}")

    def run(self, medium, encoded=True):
        """A picture [height, width, 3] of bytes or a sound of f32: (ids of the text around it, soft tokens of each piece), or with
        encoded=False the number of each piece's tokens instead of these."""
        if medium.dtype == np.uint8:
            pixels = np.ascontiguousarray(medium)
            bitmap = bitmap_of_pixels(medium.shape[1], medium.shape[0], pixels.ctypes.data)
        else:
            samples = np.ascontiguousarray(medium, np.float32)
            bitmap = bitmap_of_samples(len(samples), samples.ctypes.data)
        text = f"a{MARKER}b".encode()
        chunks = chunks_new()
        if tokenize(self.context, chunks, c.byref(Prompt(text, len(text), False, True)), (c.c_void_p * 1)(bitmap), 1) != 0:
            raise RuntimeError("llama.cpp refuses the medium")
        ids, pieces = [], []
        for i in range(chunks_size(chunks)):
            chunk, n = chunks_get(chunks, i), c.c_size_t()
            if chunk_type(chunk) == TEXT:
                tokens = chunk_text(chunk, c.byref(n))
                ids += tokens[: n.value]
                continue
            n = chunk_tokens(chunk)
            ids += [-1] * n
            if encoded and encode(self.context, chunk) != 0:
                raise RuntimeError("llama.cpp cannot encode the medium")
            pieces.append(np.ctypeslib.as_array(output(self.context), (n, self.width)).copy() if encoded else n)
        chunks_free(chunks)
        bitmap_free(bitmap)
        return ids, pieces
