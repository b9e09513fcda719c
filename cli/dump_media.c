// dump_media.c: carat dump image|mel|audio: what the towers see, hear and say, in a GGUF container, for comparing with other
// implementations.

#include "dump_media.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/model.h"
#include "media.h"
#include "media/sound.h"
#include "model/towers.h"
#include "options.h"
#include "output.h"

static const char help[] =
    "usage: carat dump image MODEL --image FILE -o FILE.gguf [OPTIONS]\n"
    "       carat dump mel|audio MODEL --audio FILE -o FILE.gguf [OPTIONS]\n\n"
    "MODEL is a model or a projector file. Writes to a GGUF file (general.architecture = golden):\n"
    "image: 'resized' bytes [h, w, 3] as the vision tower gets them (I8, to be read as unsigned), 'soft' [n, d] its soft "
    "tokens.\n"
    "mel:   'mel' [frames, 128] log-mel features; needs no model: MODEL may be -.\n"
    "audio: 'mel' and 'soft' [n, d]. A sound over 30 s is cut into pieces of 30 s; their results follow each other.\n\n"
    "  --image FILE, --audio FILE   the picture or sound\n"
    "  --image-tokens N             budget: 70, 140, 280, 560 or 1120 (default 280)\n"
    "  -o, --output FILE            where the tensors go\n";

struct dump {
    enum { DUMP_IMAGE, DUMP_MEL, DUMP_AUDIO } what;
    const char *model_name, *media_name, *output;
    int32_t image_tokens;
    struct carat_model_options options;
    struct carat_media media;
    struct gguf_file *file, *projector;
    struct ops *ops;
    struct towers *towers;
    float *soft; // [n_soft, d]
    int32_t n_soft, d;
    float *mel; // [n_frames, MEL_BANDS]
    int64_t n_frames;
    struct image resized;
};

bool dump_is_media(const char *what)
{
    return strcmp(what, "image") == 0 || strcmp(what, "mel") == 0 || strcmp(what, "audio") == 0;
}

static void parse(struct dump *dump, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc - 1, argv + 1);
    const char *option, *positional;
    dump->what = strcmp(argv[1], "image") == 0 ? DUMP_IMAGE : strcmp(argv[1], "mel") == 0 ? DUMP_MEL : DUMP_AUDIO;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && dump->model_name == NULL)
            dump->model_name = positional;
        else if (positional != NULL)
            usage_error("dump", "unexpected argument '%s'", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s", help, model_options_help);
            exit(0);
        } else if (strcmp(option, dump->what == DUMP_IMAGE ? "--image" : "--audio") == 0)
            dump->media_name = option_text(&arguments, option);
        else if (strcmp(option, "-o") == 0 || strcmp(option, "--output") == 0)
            dump->output = option_text(&arguments, option);
        else if (strcmp(option, "--image-tokens") == 0)
            dump->image_tokens = (int32_t)option_int(&arguments, option, 70, 1120);
        else if (!model_option(&arguments, option, &dump->options))
            usage_error("dump", "there is no option '%s'", option);
    }
    if (dump->model_name == NULL || dump->media_name == NULL || dump->output == NULL)
        usage_error(
            "dump", "a model, %s FILE and an output file (-o) are needed", dump->what == DUMP_IMAGE ? "--image" : "--audio");
}

static enum tower_compat compat_of(const struct dump *dump)
{
    return dump->options.compat == CARAT_COMPAT_OLLAMA      ? TOWER_OLLAMA
           : dump->options.compat == CARAT_COMPAT_LLAMA_CPP ? TOWER_LLAMA_CPP
                                                            : TOWER_REFERENCE;
}

// The width of the text model, or of the projector itself where there is no text model.
static int32_t text_width(const struct dump *dump)
{
    static const char *const names[] = {"token_embd.weight", "mm.input_projection.weight", "mm.a.input_projection.weight"};
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *tensor = gguf_find_tensor(dump->file, names[i]);
        if (tensor != NULL)
            return (int32_t)(i == 0 ? tensor->ne[0] : tensor->ne[1]);
    }
    return 0;
}

static bool open_towers(struct dump *dump, enum tower_kind kind, struct carat_error *err)
{
    if (!gguf_open_path(dump->model_name, &dump->file, err) ||
        (dump->options.projector != NULL && !gguf_open_path(dump->options.projector, &dump->projector, err)) ||
        !check_output(dump->output, gguf_file_source(dump->file, 0)->name, err) ||
        !check_output(dump->output, dump->options.projector, err) || !check_output(dump->output, dump->media_name, err))
        return false;
    dump->ops = model_new_ops(&dump->options, err);
    if (dump->ops == NULL ||
        !towers_new(dump->file, dump->projector, compat_of(dump), text_width(dump), dump->ops, &dump->towers, err))
        return false;
    double begin_ms = clock_ms();
    if (!towers_load(dump->towers, kind, NULL, NULL, err))
        return false;
    fprintf(stderr, "tower: %s of weights, loaded in %.0f ms on %s\n", bytes_text(towers_weight_bytes(dump->towers, kind)),
        clock_ms() - begin_ms, dump->ops->device);
    return true;
}

// Runs a job to its end and appends its soft tokens.
static bool finish(struct dump *dump, struct tower_job *job, struct carat_error *err)
{
    int32_t done, total;
    enum ops_state state = job != NULL ? OPS_PENDING : OPS_FAILED;
    double begin_ms = clock_ms();
    while (state == OPS_PENDING) {
        int32_t ticket = towers_ticket(job);
        if (ticket >= 0)
            dump->ops->wait(dump->ops, ticket);
        state = towers_step(job, &done, &total, err);
    }
    struct soft_tokens *soft = state == OPS_DONE ? towers_result(job) : NULL;
    if (soft != NULL)
        fprintf(stderr, "%d soft tokens in %.1f ms\n", (int)soft->rows.n_rows, clock_ms() - begin_ms);
    towers_end(job);
    if (soft == NULL)
        return false;
    size_t n = (size_t)soft->rows.n_rows * (size_t)soft->rows.n_cols, before = (size_t)dump->n_soft * (size_t)dump->d;
    float *larger = realloc(dump->soft, (before + n) * sizeof(float));
    bool ok = larger != NULL || fail(err, CARAT_NO_MEMORY, "no memory for the soft tokens");
    if (ok) {
        dump->soft = larger;
        dump->d = soft->rows.n_cols;
        dump->n_soft += soft->rows.n_rows;
        int32_t ticket =
            dump->ops->read_start(dump->ops, soft->rows.buffer, soft->rows.offset, n * sizeof(float), larger + before, err);
        ok = ticket >= 0;
        if (ok) {
            dump->ops->wait(dump->ops, ticket);
            ok = dump->ops->poll(dump->ops, ticket, err) == OPS_DONE;
        }
    }
    towers_drop(dump->towers, soft);
    return ok;
}

static bool see(struct dump *dump, struct carat_error *err)
{
    const struct carat_media *m = &dump->media;
    struct image image = {.width = m->width, .height = m->height, .rgb = (uint8_t *)m->rgb}; // only read
    enum image_rule rules[] = {IMAGE_RULE_REFERENCE, IMAGE_RULE_LLAMA_CPP, IMAGE_RULE_OLLAMA};
    int32_t budget = dump->image_tokens != 0 ? dump->image_tokens : IMAGE_DEFAULT_TOKENS;
    return image_prepare(&image, budget, rules[compat_of(dump)], &dump->resized, err) && open_towers(dump, TOWER_VISION, err) &&
           finish(dump, towers_begin_image(dump->towers, m->rgb, m->width, m->height, dump->image_tokens, err), err);
}

// The features of all pieces.
static bool analyse(struct dump *dump, struct carat_error *err)
{
    enum mel_rule rules[] = {MEL_RULE_REFERENCE, MEL_RULE_LLAMA_CPP, MEL_RULE_OLLAMA}, rule = rules[compat_of(dump)];
    int64_t n_samples = dump->media.n_samples;
    int32_t n_pieces = sound_piece_count(rule, n_samples);
    for (int32_t i = 0; i < n_pieces; i++)
        dump->n_frames += mel_frame_count_by(rule, sound_piece_samples(n_samples, i));
    if (dump->n_frames == 0)
        return fail(err, CARAT_UNSUPPORTED, "the sound has %lld samples at 16 kHz, too few to be heard: %lld are needed",
            (long long)n_samples, (long long)mel_least_samples(rule));
    dump->mel = malloc((size_t)dump->n_frames * MEL_BANDS * sizeof(float));
    if (dump->mel == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the features");
    float *at = dump->mel;
    for (int32_t i = 0; i < n_pieces; i++) {
        int64_t n = sound_piece_samples(n_samples, i);
        if (!mel_features(rule, dump->media.samples + (int64_t)i * SOUND_PIECE_SAMPLES, n, at, err))
            return false;
        at += mel_frame_count_by(rule, n) * MEL_BANDS;
    }
    return true;
}

static bool hear(struct dump *dump, struct carat_error *err)
{
    int32_t n_pieces = 0;
    if (!open_towers(dump, TOWER_AUDIO, err) || !towers_audio_pieces(dump->towers, dump->media.n_samples, &n_pieces, err))
        return false;
    for (int32_t i = 0; i < n_pieces; i++) {
        if (!finish(dump, towers_begin_audio(dump->towers, dump->media.samples, dump->media.n_samples, i, err), err))
            return false;
    }
    return true;
}

static bool save(const struct dump *dump, struct carat_error *err)
{
    struct gguf_writer *writer = output_new(dump->output, err);
    if (writer == NULL)
        return false;
    const struct image *image = &dump->resized;
    gguf_write_text(writer, "general.architecture", "golden");
    gguf_write_text(writer, "golden.kind", dump->what == DUMP_IMAGE ? "vision" : "audio");
    if (image->rgb != NULL)
        gguf_declare(writer, "resized", GGUF_TYPE_I8, 3, (uint64_t[]){3, (uint64_t)image->width, (uint64_t)image->height});
    if (dump->mel != NULL)
        gguf_declare(writer, "mel", GGUF_TYPE_F32, 2, (uint64_t[]){MEL_BANDS, (uint64_t)dump->n_frames});
    if (dump->soft != NULL)
        gguf_declare(writer, "soft", GGUF_TYPE_F32, 2, (uint64_t[]){(uint64_t)dump->d, (uint64_t)dump->n_soft});
    if (image->rgb != NULL)
        gguf_write_data(writer, image->rgb, 3 * (size_t)image->width * (size_t)image->height);
    if (dump->mel != NULL)
        gguf_write_data(writer, dump->mel, (size_t)dump->n_frames * MEL_BANDS * sizeof(float));
    if (dump->soft != NULL)
        gguf_write_data(writer, dump->soft, (size_t)dump->n_soft * (size_t)dump->d * sizeof(float));
    bool done = gguf_writer_finish(writer, err);
    gguf_writer_free(writer);
    return done;
}

int dump_media(int argc, char **argv)
{
    struct dump dump = {0};
    struct carat_error err = {0};
    parse(&dump, argc, argv);
    bool done =
        media_load(dump.media_name, dump.what == DUMP_IMAGE, dump.image_tokens, &dump.media, &err) &&
        (dump.what == DUMP_IMAGE ? see(&dump, &err) : analyse(&dump, &err) && (dump.what == DUMP_MEL || hear(&dump, &err))) &&
        save(&dump, &err);
    towers_free(dump.towers);
    if (dump.ops != NULL)
        dump.ops->free(dump.ops);
    gguf_close(dump.projector);
    gguf_close(dump.file);
    image_free(&dump.resized);
    free(dump.mel);
    free(dump.soft);
    media_unload(&dump.media);
    if (!done)
        fprintf(stderr, "carat dump: %s\n", err.message);
    return done ? 0 : 1;
}
