"""What the demo model is taught: small tables of facts and word lists, nothing else.

Every answer that the model gives about the world comes from this file. A question about anything that is not here is
answered with "I don't know."
"""

# gem: colour, hardness on the Mohs scale (rounded), mineral family, month of the birthstone or None
GEMS = {
    "ruby": ("red", 9, "corundum", "July"),
    "sapphire": ("blue", 9, "corundum", "September"),
    "emerald": ("green", 8, "beryl", "May"),
    "aquamarine": ("light blue", 8, "beryl", "March"),
    "diamond": ("colourless", 10, "carbon", "April"),
    "topaz": ("yellow", 8, "silicate", "November"),
    "amethyst": ("purple", 7, "quartz", "February"),
    "citrine": ("yellow", 7, "quartz", None),
    "rose quartz": ("pink", 7, "quartz", None),
    "garnet": ("dark red", 7, "silicate", "January"),
    "peridot": ("light green", 7, "olivine", "August"),
    "opal": ("many colours", 6, "silica", "October"),
    "turquoise": ("blue green", 6, "phosphate", "December"),
    "pearl": ("white", 3, "carbonate", "June"),
    "jade": ("green", 6, "silicate", None),
    "amber": ("orange", 2, "resin", None),
    "onyx": ("black", 7, "quartz", None),
    "moonstone": ("white", 6, "feldspar", None),
    "malachite": ("green", 4, "carbonate", None),
    "obsidian": ("black", 5, "glass", None),
}

MIXES = {
    ("red", "blue"): "purple", ("red", "yellow"): "orange", ("blue", "yellow"): "green",
    ("red", "white"): "pink", ("black", "white"): "grey", ("red", "green"): "brown",
}

THINGS = {
    "grass": "green", "the sky": "blue", "snow": "white", "coal": "black", "a lemon": "yellow", "blood": "red",
    "a banana": "yellow", "chocolate": "brown", "a tomato": "red", "milk": "white", "an elephant": "grey",
    "the sun": "yellow", "a carrot": "orange", "a leaf": "green", "the sea": "blue", "a strawberry": "red",
    "a frog": "green", "a flamingo": "pink", "a crow": "black", "a pumpkin": "orange", "salt": "white", "a plum": "purple",
}

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "Austria": "Vienna",
    "Poland": "Warsaw", "Greece": "Athens", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Ireland": "Dublin", "England": "London", "Hungary": "Budapest", "Russia": "Moscow",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo", "Canada": "Ottawa", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Brazil": "Brasilia", "Turkey": "Ankara", "Belgium": "Brussels",
    "Switzerland": "Bern", "Australia": "Canberra", "Iceland": "Reykjavik",
}

# animal: legs, what it says or None
ANIMALS = {
    "dog": (4, "woof"), "cat": (4, "meow"), "cow": (4, "moo"), "sheep": (4, "baa"), "duck": (2, "quack"),
    "horse": (4, "neigh"), "pig": (4, "oink"), "bee": (6, "buzz"), "spider": (8, None), "ant": (6, None),
    "lion": (4, "roar"), "frog": (4, "ribbit"), "owl": (2, "hoot"), "hen": (2, "cluck"), "snake": (0, "hiss"),
    "mouse": (4, "squeak"), "crab": (10, None), "fly": (6, "buzz"), "goat": (4, "maa"), "fish": (0, None),
}

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("left", "right"), ("day", "night"), ("fast", "slow"),
    ("old", "new"), ("good", "bad"), ("open", "closed"), ("wet", "dry"), ("light", "dark"), ("hard", "soft"),
    ("high", "low"), ("long", "short"), ("full", "empty"), ("happy", "sad"), ("early", "late"), ("loud", "quiet"),
    ("near", "far"), ("thick", "thin"), ("rich", "poor"), ("strong", "weak"), ("young", "aged"), ("black", "white"),
    ("true", "false"), ("first", "last"), ("clean", "dirty"), ("begin", "end"), ("push", "pull"), ("win", "lose"),
]

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
SEASONS = {"winter": ["December", "January", "February"], "spring": ["March", "April", "May"],
           "summer": ["June", "July", "August"], "autumn": ["September", "October", "November"]}

# one LEFT is N RIGHT
UNITS = [
    ("minute", 60, "seconds"), ("hour", 60, "minutes"), ("day", 24, "hours"), ("week", 7, "days"), ("year", 12, "months"),
    ("metre", 100, "centimetres"), ("kilometre", 1000, "metres"), ("centimetre", 10, "millimetres"),
    ("kilogram", 1000, "grams"), ("litre", 1000, "millilitres"), ("dozen", 12, "pieces"), ("century", 100, "years"),
    ("decade", 10, "years"), ("tonne", 1000, "kilograms"), ("euro", 100, "cents"),
]

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def number_words(n):
    """0..100 in English words."""
    if n == 100:
        return "one hundred"
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")


COLOURS = ["red", "green", "blue", "yellow", "orange", "purple", "pink", "brown", "black", "white", "grey"]

WORDS = """apple ball bank bird boat book box bread bridge brush cake candle car card cat chair clock cloud coat coin cup
desk dog door drum egg eye farm fish flag flower fork fox frog game garden gate gift glass goat gold hand hat hill horse
house ice ink island jar kettle key king kite knife lake lamp leaf letter lion map milk mirror moon mouse nail nest nut
oil onion orange owl paint paper pear pen piano pig plate pond queen rain ring river road rock roof rope rose salt sand
school sea ship shoe silver snow sock spoon star stone sun table tea tent tiger train tree truck vase wall watch water
whale wheel wind window wolf wood yard zebra""".split()

NAMES = """Anna Ben Carla David Emma Felix Grace Hugo Ida Jack Kate Leo Mia Noah Olga Paul Quinn Rosa Sam Tina Uma Victor
Wendy Xavier Yara Zoe Adam Bella Chris Diana Eva Frank Gina Henry Irene Jonas Karl Lena Max Nina Oscar Petra Robin Sara
Tom Ursula Vera Will Alma Bruno Clara Dora Erik Fiona George Hanna Igor Julia Kevin Laura Marco Nora Otto Pia Ralf Sofia
Theo Viola""".split()

PETS = ["dog", "cat", "horse", "rabbit", "hamster", "parrot", "turtle", "goldfish", "mouse", "pony"]
OTHER_COUNTRIES = """Kenya Mexico Vietnam Nepal Mongolia Ghana Morocco Bolivia Jamaica Thailand Ukraine Romania Bulgaria
Croatia Serbia Israel Jordan Iran Iraq Pakistan Indonesia Malaysia Nigeria Angola Zambia Uganda Laos Cambodia Panama
Ecuador Uruguay Paraguay Colombia Estonia Latvia Lithuania Malta Cyprus Georgia Armenia""".split()

# short words for pictures
SIGNS = """stop go yes no cat dog sun moon tea cup car bus key box map red blue one two ten open exit help hello star fish
tree milk salt sand gold ruby opal jade pearl left right up down hot cold in out on off new old big sale shop taxi menu
lion wolf bear frog""".split()

# spoken words
COMMANDS = ["yes", "no", "stop", "go", "left", "right", "up", "down", "on", "off", "hello", "help"]
SPOKEN_DIGITS = ONES[:10]
SPOKEN_COLOURS = ["red", "green", "blue", "yellow", "orange", "purple", "pink", "brown", "black", "white"]
