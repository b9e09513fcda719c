"""Pictures that the demo model learns to see, drawn here, and questions about them with one right answer each.

Kinds: coloured shapes at named places, several shapes to count, printed numbers, printed words, plain areas. The picture
is prepared as Gemma 4's image processor does it: stretched to multiples of 48 that fill a budget of soft tokens, bicubic.
"""

import functools
import math
import os

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import curriculum
import facts
from phrases import ask, cap, made_up, pick

PALETTE = {"red": (218, 30, 36), "green": (34, 160, 60), "blue": (36, 72, 220), "yellow": (246, 222, 44), "orange": (245, 138, 22),
           "purple": (128, 40, 168), "pink": (250, 150, 192), "brown": (128, 74, 32), "black": (14, 14, 14), "white": (250, 250, 250),
           "grey": (128, 128, 128)}
UNNAMED = [(222, 222, 226), (42, 44, 62), (250, 240, 214), (206, 224, 250), (214, 240, 214), (64, 30, 30)]
SHAPES = ["circle", "square", "triangle", "star", "diamond", "cross", "ring"]
PLACES = [["at the top left", "at the top", "at the top right"], ["on the left", "in the centre", "on the right"],
          ["at the bottom left", "at the bottom", "at the bottom right"]]


@functools.cache
def fonts():
    """DejaVu faces from data/fonts, the system or matplotlib, and None for the face built into PIL."""
    roots = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "data/fonts"), "/usr/share/fonts/truetype/dejavu"]
    try:
        import matplotlib
        roots.append(os.path.join(os.path.dirname(matplotlib.__file__), "mpl-data/fonts/ttf"))
    except ImportError:
        pass
    names = ["DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif",
             "DejaVuSerif-Bold", "DejaVuSerif-Italic"]
    found = []
    for name in names:
        for root in roots:
            path = os.path.join(root, name + ".ttf")
            if os.path.exists(path):
                found.append(path)
                break
    return found + [None]


@functools.lru_cache(maxsize=512)
def font(path, size):
    return ImageFont.truetype(path, size) if path else ImageFont.load_default(size)


def shade(rng, colour):
    return tuple(min(255, max(0, c + rng.randint(-10, 10))) for c in colour)


def apart(a, b):
    return math.dist(a, b) > 120


def draw_shape(d, shape, x, y, r, fill, background, turn):
    """A shape of 'radius' r around (x, y)."""
    def polygon(points):
        d.polygon([(x + r * px, y + r * py) for px, py in points], fill=fill)

    if shape == "circle":
        d.ellipse([x - r, y - r, x + r, y + r], fill=fill)
    elif shape == "ring":
        d.ellipse([x - r, y - r, x + r, y + r], fill=fill)
        i = r * 0.55
        d.ellipse([x - i, y - i, x + i, y + i], fill=background)
    elif shape == "square":
        s = r * 0.88
        d.rectangle([x - s, y - s, x + s, y + s], fill=fill)
    elif shape == "triangle":
        polygon([(0, -1), (0.95, 0.8), (-0.95, 0.8)])
    elif shape == "diamond":
        polygon([(0, -1), (0.75, 0), (0, 1), (-0.75, 0)])
    elif shape == "cross":
        w = 0.32
        d.rectangle([x - r * w, y - r, x + r * w, y + r], fill=fill)
        d.rectangle([x - r, y - r * w, x + r, y + r * w], fill=fill)
    else:
        points = []
        for k in range(10):
            a = -math.pi / 2 + k * math.pi / 5 + turn
            q = 1.0 if k % 2 == 0 else 0.42
            points.append((q * math.cos(a), q * math.sin(a)))
        polygon(points)


def canvas_size(rng):
    r = rng.random()
    base = rng.choices([96, 128, 160, 200, 224, 256, 320, 400, 512], [2, 2, 2, 2, 2, 2, 2, 1, 0.5])[0]
    if r < 0.4:
        return base, base
    ratio = math.exp(rng.uniform(-0.9, 0.9))
    w = int(base * math.sqrt(ratio))
    return max(w, 48), max(int(base / math.sqrt(ratio)), 48)


class Scene:
    """An image under construction at twice the size, halved at the end when smooth edges are wanted."""

    def __init__(self, rng, size=None, plain=None):
        self.w, self.h = size or canvas_size(rng)
        self.k = 2 if rng.random() < 0.5 and max(self.w, self.h) <= 400 else 1
        r = rng.random()
        self.background_name = None
        if plain:
            self.background_name = plain
        elif r < 0.45:
            self.background_name = "white"
        elif r < 0.6:
            self.background_name = "black"
        elif r < 0.8:
            self.background_name = pick(rng, list(PALETTE))
        self.background = shade(rng, PALETTE[self.background_name]) if self.background_name else pick(rng, UNNAMED)
        self.image = Image.new("RGB", (self.w * self.k, self.h * self.k), self.background)
        self.d = ImageDraw.Draw(self.image)

    def ink(self, rng):
        """A named colour that stands out from the background."""
        while True:
            name = pick(rng, list(PALETTE))
            if apart(PALETTE[name], self.background):
                return name, shade(rng, PALETTE[name])

    def done(self, rng):
        image = self.image.resize((self.w, self.h), Image.BOX) if self.k > 1 else self.image
        if rng.random() < 0.15:
            a = np.asarray(image, np.int16)
            noise = np.random.default_rng(rng.getrandbits(32)).integers(-9, 10, a.shape, np.int8)
            image = Image.fromarray(np.clip(a + noise, 0, 255).astype(np.uint8))
        return image


def a_an(text):
    return ("an " if text[0] in "aeiou" else "a ") + text


DESCRIBE = "what do you see|describe (the|this) (image|picture)|what is (this|in the picture|in the image|on the picture)|what does the (image|picture) show|tell me what you see|look at this|what's this|describe it"


def plural(shape):
    return {"cross": "crosses"}.get(shape, shape + "s")


def place_questions(rng, objects):
    """objects: {(row, col): (colour, shape)}"""
    def thing(o):
        return f"{o[0]} {o[1]}"

    out = []
    order = sorted(objects.items())
    description = cap(", ".join(f"{a_an(thing(o))} {PLACES[r][c]}" for (r, c), o in order)) + "."
    out.append((3, ask(rng, DESCRIBE), description))
    shapes = [o[1] for o in objects.values()]
    (r, c), o = pick(rng, order)
    if len(objects) == 1:
        out.append((3, ask(rng, "what shape is (this|it|that)|(which|what) shape (do you see|is in the picture|is shown|is there)|name the shape"), f"It is {a_an(o[1])}."))
        out.append((2, ask(rng, "what (colour|color) is (it|this|the shape)|(which|what) (colour|color) does (it|the shape) have"), f"It is {o[0]}."))
        out.append((2, ask(rng, "where is (it|the shape)|where is the [s]", s=o[1]), f"The {thing(o)} is {PLACES[r][c]}."))
    if shapes.count(o[1]) == 1:
        out.append((3, ask(rng, "what (colour|color) is the [s]|(which|what) (colour|color) does the [s] have|tell me the colour of the [s]", s=o[1]), f"The {o[1]} is {o[0]}."))
        out.append((2, ask(rng, "where is the [s]|where do you see the [s]|(which|what) place is the [s] at|find the [s]", s=o[1]), f"The {thing(o)} is {PLACES[r][c]}."))
    if list(objects.values()).count(o) == 1:
        out.append((2, ask(rng, "where is the [t]|where do you see the [t]|find the [t]|in which place is the [t]", t=thing(o)), f"The {thing(o)} is {PLACES[r][c]}."))
    row, col = rng.randrange(3), rng.randrange(3)
    if rng.random() < 0.6:
        row, col = r, c
    there = objects.get((row, col))
    q = ask(rng, "what is [p]|what do you see [p]|what can you see [p]|is there something [p]", p=PLACES[row][col])
    out.append((2, q, f"{cap(a_an(thing(there)))} is {PLACES[row][col]}." if there else f"Nothing is {PLACES[row][col]}."))
    probe = o if rng.random() < 0.5 else (pick(rng, list(PALETTE)), pick(rng, SHAPES))
    q = ask(rng, "is there [t]|do you see [t]|can you see [t]|does the picture show [t]", t=a_an(thing(probe)))
    out.append((2, q, f"Yes, there is {a_an(thing(probe))}." if probe in objects.values() else f"No, there is no {thing(probe)}."))
    return out


def background_question(rng, s, out):
    if s.background_name:
        out.append((0.7, ask(rng, "what (colour|color) is the background|(which|what) (colour|color) does the background have|background colour"),
                    f"The background is {s.background_name}."))


def shapes_scene(rng, size=None):
    s = Scene(rng, size)
    n = rng.choice([1, 1, 1, 2, 2, 3, 4])
    cells = rng.sample([(r, c) for r in range(3) for c in range(3)], n)
    W, H = s.w * s.k, s.h * s.k
    objects = {}
    for r, c in cells:
        name, fill = s.ink(rng)
        shape = pick(rng, SHAPES)
        radius = min(W, H) / 6 * rng.uniform(0.55, 0.95)
        x = W / 3 * (c + 0.5 + rng.uniform(-0.15, 0.15))
        y = H / 3 * (r + 0.5 + rng.uniform(-0.15, 0.15))
        if n == 1 and (r, c) == (1, 1):
            radius *= rng.uniform(1, 2.6)
        draw_shape(s.d, shape, x, y, radius, fill, s.background, rng.uniform(-0.3, 0.3))
        objects[(r, c)] = (name, shape)
    out = place_questions(rng, objects)
    background_question(rng, s, out)
    out.append((1, ask(rng, HOW_MANY), counted([r for r, _ in objects], "shape", "shapes")))
    return s.done(rng), out


HOW_MANY = "how many (shapes|objects|things) are (there|in the picture)|how many (shapes|objects) do you see|count the (shapes|objects)"


def counted(rows, one, many):
    """The answer to a question of how many: row by row, then together. So small a model can't count nine at a glance, but three."""
    n = len(rows)
    total = f"there are no {many}" if n == 0 else f"there is 1 {one}" if n == 1 else f"there are {n} {many}"
    return f"Top {rows.count(0)}, middle {rows.count(1)}, bottom {rows.count(2)}: {total}."


def count_scene(rng, size=None):
    """Up to nine shapes in three rows of three places."""
    s = Scene(rng, size)
    n = rng.randint(1, 9)
    kinds = [(s.ink(rng), pick(rng, SHAPES)) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    W, H = s.w * s.k, s.h * s.k
    made = []
    for cell in rng.sample(range(9), n):
        r, c = divmod(cell, 3)
        (name, fill), shape = pick(rng, kinds)
        radius = min(W, H) / 6 * rng.uniform(0.55, 0.85)
        x = W / 3 * (c + 0.5 + rng.uniform(-0.1, 0.1))
        y = H / 3 * (r + 0.5 + rng.uniform(-0.1, 0.1))
        draw_shape(s.d, shape, x, y, radius, fill, s.background, rng.uniform(-0.3, 0.3))
        made.append((r, name, shape))
    out = [(2, ask(rng, HOW_MANY), counted([r for r, _, _ in made], "shape", "shapes"))]
    shapes = sorted({x for _, _, x in made})
    for shape in [*shapes, pick(rng, SHAPES)]:
        out.append((4 / len(shapes) if shape in shapes else 0.6,
                    ask(rng, "how many [s] are (there|in the picture)|how many [s] (do|can) you see|count the [s]|number of [s]", s=plural(shape)),
                    counted([r for r, _, x in made if x == shape], shape, plural(shape))))
    colours = sorted({x for _, x, _ in made})
    for colour in [*colours, pick(rng, list(PALETTE))]:
        out.append((2 / len(colours) if colour in colours else 0.3,
                    ask(rng, "how many [c] (shapes|objects) are (there|in the picture)|how many [c] shapes do you see|count the [c] shapes", c=colour),
                    counted([r for r, x, _ in made if x == colour], colour + " shape", colour + " shapes")))
    return s.done(rng), out


SMALLEST_PRINT = 12   # pixels of a font's size
INVENTED = 0.1   # share of printed words that are no words; held-out pictures have none


def random_word(rng):
    w = made_up(rng) if rng.random() < INVENTED else pick(rng, facts.SIGNS if rng.random() < 0.6 else facts.WORDS)
    r = rng.random()
    return w if r < 0.4 else w.upper() if r < 0.75 else cap(w)


def text_scene(rng, text, canvas=None):
    """A picture of one printed text, or None if it does not fit at a readable size."""
    s = Scene(rng, canvas)
    W, H = s.w * s.k, s.h * s.k
    name, fill = s.ink(rng)
    path = pick(rng, fonts())
    probe = font(path, 100).getbbox(text)
    size = min(0.94 * W * 100 / (probe[2] - probe[0]), 0.9 * H * 100 / (probe[3] - probe[1]), 0.75 * H)
    smallest = max(0.14 * math.sqrt(W * H), SMALLEST_PRINT * s.k)
    if size < smallest:
        return None
    size = int(rng.uniform(max(smallest, size * 0.35), size))
    f = font(path, size)
    x0, y0, x1, y1 = f.getbbox(text)
    w, h = x1 - x0, y1 - y0
    x = rng.uniform(0.02 * W, max(0.02 * W, 0.98 * W - w))
    y = rng.uniform(0.03 * H, max(0.03 * H, 0.97 * H - h))
    s.d.text((x - x0, y - y0), text, font=f, fill=fill)
    return s, name


def number_scene(rng, size=None):
    while True:
        text = str(rng.randint(0, 10 ** rng.choice([1, 2, 2, 3, 4]) - 1))
        made = text_scene(rng, text, size)
        if made:
            break
    s, name = made
    out = [(4, ask(rng, "(which|what) number is (this|it|that|shown|in the picture)|read the number|what number do you see|what does it say|(read|write down) the digits|what number does the picture show"), f"The number is {text}."),
           (2, ask(rng, DESCRIBE), f"The number {text}."),
           (1, ask(rng, "what (colour|color) is the number|(which|what) (colour|color) does the number have"), f"The number is {name}.")]
    background_question(rng, s, out)
    return s.done(rng), out


def word_scene(rng, size=None):
    while True:
        text = random_word(rng)
        made = text_scene(rng, text, size)
        if made:
            break
    s, name = made
    out = [(4, ask(rng, "(which|what) word is (this|it|shown|in the picture)|read the word|what word do you see|what does (it|the picture|the sign) say|what is written (here|in the picture)|read (this|it)"), f'It says "{text}".'),
           (2, ask(rng, DESCRIBE), f'The word "{text}".'),
           (1, ask(rng, "what (colour|color) is the word|(which|what) (colour|color) does the word have"), f"The word is {name}.")]
    background_question(rng, s, out)
    return s.done(rng), out


def plain_scene(rng, size=None):
    name = pick(rng, list(PALETTE))
    s = Scene(rng, size, name)
    out = [(3, ask(rng, "what (colour|color) is (this|it|the picture|the image)|(which|what) (colour|color) do you see"), f"It is {name}."),
           (2, ask(rng, DESCRIBE), f"A plain {name} picture."),
           (1, ask(rng, HOW_MANY), counted([], "shape", "shapes"))]
    return s.done(rng), out


SCENES = {"shapes": (shapes_scene, 4.5), "count": (count_scene, 6), "number": (number_scene, 3), "word": (word_scene, 5.5), "plain": (plain_scene, 0.3)}
_NAMES = list(SCENES)
_WEIGHTS = [SCENES[n][1] for n in _NAMES]


def scene(rng, name=None, size=None, questions=None):
    """(PIL image, [(question, answer), ...]): one to four different questions, or as many as asked for and possible."""
    name = name or rng.choices(_NAMES, _WEIGHTS)[0]
    image, options = SCENES[name][0](rng, size)
    n = min(len(set(options)), questions or rng.choice([2, 3, 4] if name == "count" else [1, 2, 3]))
    chosen = [options[0]] if name in ("number", "word") and rng.random() < 0.75 else []
    while len(chosen) < n:
        o = rng.choices(options, [x[0] for x in options])[0]
        if o not in chosen:
            chosen.append(o)
    return image, [(q, a) for _, q, a in chosen]


def target_size(h, w, budget):
    """Height and width that the model sees: multiples of 48 that nearly fill the budget."""
    f = math.sqrt(budget * 9 * 256 / (h * w))
    th, tw = math.floor(f * h / 48) * 48, math.floor(f * w / 48) * 48
    if th == 0:
        th, tw = 48, min(w // h * 48, budget * 48)
    elif tw == 0:
        th, tw = min(h // w * 48, budget * 48), 48
    return th, tw


def patches(image, budget):
    """uint8 patches [n, 768] in row order, each (y, x, channel); positions [n, 2] as (column, row); soft tokens."""
    th, tw = target_size(image.height, image.width, budget)
    a = np.asarray(image.resize((tw, th), Image.BICUBIC))
    gy, gx = th // 16, tw // 16
    p = a.reshape(gy, 16, gx, 16, 3).transpose(0, 2, 1, 3, 4).reshape(gy * gx, 768)
    pos = np.stack(np.meshgrid(np.arange(gx), np.arange(gy)), -1).reshape(-1, 2)
    return p, pos.astype(np.int16), gx * gy // 9


def messages_for(qa, media, kind, rng=None):
    """A conversation about one media item, which comes with the first question. With rng: sometimes text before it."""
    out = []
    for i, (q, a) in enumerate(qa):
        text = {"type": "text", "text": q}
        m = {"type": kind, kind: media}
        parts = [text, m] if rng and rng.random() < 0.15 else [m, text]
        content = q if i else parts if q else [m]
        out += [{"role": "user", "content": content}, {"role": "assistant", "content": a}]
    if rng and rng.random() < 0.08:
        t = curriculum.base_turn(rng)
        out = [{"role": "user", "content": t.user}, {"role": "assistant", "content": t.answer}] + out
    if rng and rng.random() < 0.05:
        t = curriculum.base_turn(rng)
        out += [{"role": "user", "content": t.user}, {"role": "assistant", "content": t.answer}]
    if rng and rng.random() < 0.08:
        out = [{"role": "system", "content": pick(rng, curriculum.PLAIN_SYSTEM)}] + out
    return out
