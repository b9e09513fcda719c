"""The text curriculum: questions with one right answer each, and the conversations built from them.

A base skill is a function of a random generator that returns a `Turn`. Composers put turns into conversations: several
in a row, under a system prompt, with thinking, with tools. Everything is a function of the seed.

Held out: a turn whose key hashes into the held-out twentieth is never used for training, and only such turns are used
for evaluation. The key is the question's text unless the skill names a stricter one (the operands of a sum).
"""

import json
import random
import re
import zlib

import facts

HELD_OUT_ONE_IN = 20


def is_held_out(key):
    return zlib.crc32(key.encode()) % HELD_OUT_ONE_IN == 0


class Turn:
    """A question, its answer, and what composers need to dress it up."""

    __slots__ = ("user", "answer", "word", "topic", "key", "thought", "skill")

    def __init__(self, user, answer, word=None, topic="", key=None, thought=None):
        self.user, self.answer, self.word, self.topic, self.thought = user, answer, word, topic, thought
        self.key = key or user
        self.skill = None


# ---- phrases: "(a|b (c|)) [slot]" ------------------------------------------------------------------------------

_parsed = {}


def _parse(text):
    """Text with nested alternatives as a tree: a list of strings and lists of alternatives."""
    pos = 0

    def sequence():
        nonlocal pos
        out, buf = [], []
        while pos < len(text) and text[pos] not in "|)":
            if text[pos] == "(":
                if buf:
                    out.append("".join(buf))
                    buf = []
                pos += 1
                options = [sequence()]
                while text[pos] == "|":
                    pos += 1
                    options.append(sequence())
                pos += 1
                out.append(options)
            else:
                buf.append(text[pos])
                pos += 1
        if buf:
            out.append("".join(buf))
        return out

    options = [sequence()]
    while pos < len(text) and text[pos] == "|":
        pos += 1
        options.append(sequence())
    return [options]


def _expand(rng, node):
    out = []
    for part in node:
        out.append(part if isinstance(part, str) else _expand(rng, part[int(rng.random() * len(part))]))
    return "".join(out)


def say(rng, template, **slots):
    tree = _parsed.get(template)
    if tree is None:
        tree = _parsed[template] = _parse(template)
    text = _expand(rng, tree)
    if slots:
        text = re.sub(r"\[(\w+)\]", lambda m: str(slots[m.group(1)]), text)
    return text


POLITE = ["please ", "can you tell me: ", "tell me, ", "quick question: ", "hey, ", "ok, ", "now ", "so, ", "I want to know: ",
          "carat, ", "well, ", "next: ", "question: ", "and ", "hello, ", "hi, "]


def ask(rng, template, end="?", **slots):
    """A question as people type it: with or without a capital, a mark at the end, a polite word."""
    text = say(rng, template, **slots)
    if rng.random() < 0.12:
        text = POLITE[int(rng.random() * len(POLITE))] + text
    if rng.random() < 0.8:
        text = text[:1].upper() + text[1:]
    r = rng.random()
    if r < 0.75:
        text += end
    elif r < 0.80:
        text += " please" + end
    elif r < 0.83:
        text += " " + end
    return text


def cap(text):
    return text[:1].upper() + text[1:]


def pick(rng, seq):
    return seq[int(rng.random() * len(seq))]


# ---- made-up words ---------------------------------------------------------------------------------------------

_ON = ["b", "br", "d", "dr", "f", "fl", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "w", "z",
       "sh", "th", "qu", "j"]
_VO = ["a", "e", "i", "o", "u", "ai", "ee", "oo", "ou"]
_CO = ["", "n", "r", "l", "s", "t", "k", "m", "x", "nd", "rt", "st"]


def made_up(rng, n=None):
    n = n or rng.randint(1, 3)
    return "".join(pick(rng, _ON) + pick(rng, _VO) + pick(rng, _CO) for _ in range(n))


_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&*+-/:;=?@_~^.,'\"(){}[]"


def random_text(rng):
    r = rng.random()
    if r < 0.5:
        return " ".join(made_up(rng) for _ in range(rng.randint(1, 4)))
    if r < 0.8:
        return "".join(pick(rng, _SYMBOLS) for _ in range(rng.randint(2, 10)))
    if r < 0.9:
        return "".join(chr(rng.choice([rng.randint(0xC0, 0x17F), rng.randint(0x391, 0x3C9), rng.randint(0x4E00, 0x9000),
                                       rng.randint(0x1F600, 0x1F64F)])) for _ in range(rng.randint(1, 5)))
    return " ".join(str(rng.randint(0, 999)) for _ in range(rng.randint(1, 5)))


# ---- base skills -----------------------------------------------------------------------------------------------

CHAT = [
    ("(hello|hi|hey|good morning|good evening|good afternoon|greetings|hi there|hello there|howdy|hey you|hello carat|hi carat)(| my friend| again)",
     "Hello! How can I help?", "!"),
    ("(who are you|what are you|what is your name|what's your name|tell me your name|introduce yourself|how are you called|your name|who am I talking to|do you have a name|say who you are)",
     "I am Carat, a tiny Gemma 4 model.", "?"),
    ("(how are you|how are you doing|how do you do|how is it going|are you well|how do you feel|are you ok)(| today)",
     "I am fine, thank you.", "?"),
    ("(what can you do|what do you know|how can you help me|help|what are you good at|what can I ask you|what are your skills|tell me what you can do|list your skills|show me what you can do)",
     "I know gems, colours, numbers, days, units, capitals and lists, and I can see and hear a little.", "?"),
    ("(thanks|thank you|thanks a lot|many thanks|thank you very much|thx|cheers)(| carat| for that| for your help)",
     "You are welcome.", "!"),
    ("(bye|goodbye|see you|see you later|good night|good bye|farewell|bye bye|I have to go)(| carat| now)",
     "Goodbye!", "!"),
    ("(tell me a joke|say something funny|make me laugh|do you know a joke|a joke|joke|can you tell jokes|I want a joke)",
     "Why did the ruby blush? It saw the diamond's cut.", ""),
    ("(how big are you|how large are you|how many parameters do you have|what size are you|are you small|what is your size)",
     "I am very small: about ten million numbers.", "?"),
    ("(who made you|who trained you|who built you|where do you come from|who created you|who is your maker)",
     "The carat project trained me on its own data.", "?"),
    ("(are you a human|are you human|are you a robot|are you real|are you alive|are you a person|are you a machine|are you an AI)",
     "I am a small language model.", "?"),
    ("(you are (great|nice|good|clever|the best|smart|cool)|well done|good job|nice work|great|good answer|that is right|correct)",
     "Thank you, that is kind.", "!"),
    ("(you are (wrong|bad|stupid|silly|no good)|that is wrong|wrong|that is not right|bad answer|that was wrong)",
     "I am sorry. I am small and make mistakes.", "."),
    ("(ok|okay|alright|fine|I see|good|got it|understood|yes|sure)",
     "Good. What is next?", "."),
    ("(what is a gem|what is a gemstone|what are gems|what are gemstones|explain gems|define gem)",
     "A gem is a mineral that is cut and polished for its beauty.", "?"),
    ("(what is a carat|what does carat mean|how heavy is a carat|define carat|how much is a carat|what's a carat)",
     "A carat is 0.2 grams, a weight for gems.", "?"),
    ("(what is the hardest gem|which gem is the hardest|what is the hardest stone|name the hardest gem|what's the hardest gem)",
     "Diamond is the hardest gem.", "?"),
    ("(what are the primary colours|name the primary colours|which colours are primary|list the primary colors|what are the primary colors)",
     "The primary colours are red, yellow and blue.", "?"),
    ("(what are the colours of the rainbow|name the colours of the rainbow|list the rainbow colours|what colors does a rainbow have|which colours are in the rainbow)",
     "The rainbow is red, orange, yellow, green, blue, indigo and violet.", "?"),
]


CHAT += [
    ("(what time is it|what's the time|tell me the time|how late is it|what is the time|the time|do you know the time)(| now)", "I have no clock.", "?"),
    ("(what is the weather|how is the weather|what's the weather|weather)( in (Paris|Rome|London|Berlin|Oslo|Tokyo|Madrid)|)", "I have no weather tool.", "?"),
]


def chat(rng):
    template, answer, end = pick(rng, CHAT)
    return Turn(ask(rng, template, end), answer, topic="small talk")


def gems(rng):
    name = pick(rng, list(facts.GEMS))
    colour, hardness, family, month = facts.GEMS[name]
    kind = rng.random()
    if kind < 0.3:
        q = ask(rng, "(what colour is|what color is|which colour has|what is the colour of|what is the color of|what's the colour of|tell me the colour of) (|a |the )[g]|(|the )[g] colour|(what colour does|which colour does) (a |)[g] have", g=name)
        return Turn(q, f"{cap(name)} is {colour}." if name != "opal" else "Opal has many colours.", colour, "gems")
    if kind < 0.5:
        q = ask(rng, "how hard is (a |)[g]|what is the hardness of (a |)[g]|(what's the |)[g] hardness|how hard is [g] on the Mohs scale|what is the Mohs hardness of [g]|tell me how hard [g] is", g=name)
        return Turn(q, f"The hardness of {name} is {hardness}.", str(hardness), "gems")
    if kind < 0.6:
        q = ask(rng, "what (kind|type|family) of (mineral|material|stone) is (a |)[g]|what is [g] made of|which (mineral|family) does [g] belong to|[g] is a kind of what|what is the family of [g]", g=name)
        return Turn(q, f"{cap(name)} is a kind of {family}.", family, "gems")
    if kind < 0.8:
        while month is None:
            name = pick(rng, list(facts.GEMS))
            month = facts.GEMS[name][3]
        if rng.random() < 0.5:
            q = ask(rng, "(what|which gem|which stone) is the birthstone (of|for) [m]|(what's the |)birthstone (of|for) [m]|(which|what) gem (stands for|belongs to) [m]|name the birthstone of [m]", m=month)
            return Turn(q, f"{cap(name)} is the birthstone of {month}.", name, "gems")
        q = ask(rng, "(which|what) month is [g] the birthstone (of|for)|[g] is the birthstone of (which|what) month|what is the (birth |)month of [g]|in which month is [g] the birthstone", g=name)
        return Turn(q, f"{cap(name)} is the birthstone of {month}.", month, "gems")
    if kind < 0.9:
        other = pick(rng, [g for g in facts.GEMS if g != name])
        h2 = facts.GEMS[other][1]
        q = ask(rng, "(which|what) is harder, [a] or [b]|is [a] or [b] harder|(which one is|what's) harder: [a] or [b]|compare the hardness of [a] and [b]", a=name, b=other)
        if hardness == h2:
            return Turn(q, f"{cap(name)} and {other} are equally hard.", None, "gems")
        hard, soft = (name, other) if hardness > h2 else (other, name)
        return Turn(q, f"{cap(hard)} is harder than {soft}.", hard, "gems")
    q = ask(rng, "what is (a |an |)[g]|tell me about [g]|describe [g]|what do you know about [g]|explain [g]|what's [g]", g=name)
    return Turn(q, f"{cap(name)} is a {colour} gem with hardness {hardness}." if name != "opal" else
                "Opal is a gem of many colours with hardness 6.", None, "gems")


def colours(rng):
    if rng.random() < 0.4:
        (a, b), c = pick(rng, list(facts.MIXES.items()))
        if rng.random() < 0.5:
            a, b = b, a
        q = ask(rng, "what (colour|color) do you get (when you mix|from mixing|if you mix) [a] (and|with) [b]|[a] (and|plus|+) [b] (makes what|gives what)|what (do|does) [a] (and|plus) [b] (make|give)|mix [a] and [b]|what is [a] mixed with [b]|what colour is a mix of [a] and [b]", a=a, b=b)
        return Turn(q, f"{cap(a)} and {b} make {c}.", c, "colours")
    thing, c = pick(rng, list(facts.THINGS.items()))
    q = ask(rng, "what (colour|color) is [t]|(which|what) (colour|color) does [t] have|what is the (colour|color) of [t]|tell me the colour of [t]|what's the colour of [t]", t=thing)
    return Turn(q, f"{cap(thing)} is {c}.", c, "colours")


def capitals(rng):
    country, city = pick(rng, list(facts.CAPITALS.items()))
    if rng.random() < 0.7:
        q = ask(rng, "what is the capital (of|city of) [c]|what's the capital of [c]|(|the )capital of [c]|which city is the capital of [c]|name the capital of [c]|tell me the capital of [c]|[c] capital|do you know the capital of [c]", c=country)
        return Turn(q, f"The capital of {country} is {city}.", city, "capitals")
    q = ask(rng, "[k] is the capital of (which|what) country|(which|what) country has the capital [k]|of which country is [k] the capital|which country is [k] the capital of|where is [k]|what country is [k] in", k=city)
    return Turn(q, f"{city} is the capital of {country}.", country, "capitals")


def animals(rng):
    name = pick(rng, list(facts.ANIMALS))
    legs, sound = facts.ANIMALS[name]
    a = "an" if name[0] in "aeiou" else "a"
    if sound is None or rng.random() < 0.5:
        q = ask(rng, "how many legs (does [a] [n] have|has [a] [n])|number of legs of [a] [n]|what number of legs does [a] [n] have|tell me how many legs [a] [n] has", a=a, n=name)
        return Turn(q, f"{cap(a)} {name} has {legs} legs." if legs else f"{cap(a)} {name} has no legs.", str(legs), "animals")
    q = ask(rng, "what does [a] [n] say|what sound does [a] [n] make|how does [a] [n] sound|(which|what) noise does [a] [n] make|what is the sound of [a] [n]", a=a, n=name)
    return Turn(q, f"{cap(a)} {name} says {sound}.", sound, "animals")


def opposites(rng):
    a, b = pick(rng, facts.OPPOSITES)
    if rng.random() < 0.5:
        a, b = b, a
    q = ask(rng, "what is the opposite of [a]|what's the opposite of [a]|(the |)opposite of [a]|give me the opposite of [a]|which word is the opposite of [a]|tell me the opposite of [a]|antonym of [a]|the reverse of [a] is what", a=a)
    return Turn(q, f"The opposite of {a} is {b}.", b, "opposites")


def counting(rng):
    kind = rng.random()
    if kind < 0.35:
        a = rng.choice([1, 1, rng.randint(0, 60)])
        n = rng.randint(3, 12)
        b = a + n - 1
        if rng.random() < 0.3:
            q = ask(rng, "count (down |backwards )from [b] to [a]|count [b] to [a] backwards|can you count down from [b] to [a]", ".", a=a, b=b)
            seq = list(range(b, a - 1, -1))
        else:
            q = ask(rng, "count (up |)from [a] to [b]|count [a] to [b]|list the numbers from [a] to [b]|write the numbers [a] to [b]|(say|give me) the numbers from [a] to [b]" + ("|count to [b]|can you count to [b]" if a == 1 else ""), ".", a=a, b=b)
            seq = list(range(a, b + 1))
        return Turn(q, ", ".join(map(str, seq)) + ".", None, "counting")
    if kind < 0.5:
        n = rng.randint(0, 99)
        q = ask(rng, "what (number |)comes after [n]|(which|what) number follows [n]|what is the next number after [n]|what is the number after [n]", n=n)
        return Turn(q, f"{n + 1} comes after {n}.", str(n + 1), "counting")
    if kind < 0.6:
        n = rng.randint(1, 100)
        q = ask(rng, "what (number |)comes before [n]|(which|what) number is before [n]|what is the number before [n]|which number precedes [n]", n=n)
        return Turn(q, f"{n - 1} comes before {n}.", str(n - 1), "counting")
    if kind < 0.7:
        n = rng.randint(0, 100)
        q = ask(rng, "is [n] (odd or even|even or odd|an odd or an even number)|is the number [n] odd or even|[n]: odd or even", n=n)
        w = "odd" if n % 2 else "even"
        return Turn(q, f"{n} is {w}.", w, "counting")
    if kind < 0.8:
        a, b = rng.randint(0, 100), rng.randint(0, 100)
        while a == b:
            b = rng.randint(0, 100)
        big = rng.random() < 0.5
        if big:
            q = ask(rng, "(which|what) is (bigger|larger|greater|more), [a] or [b]|(which|what) number is (bigger|larger|greater): [a] or [b]|is [a] or [b] (bigger|larger|greater)", a=a, b=b)
            x, y = max(a, b), min(a, b)
            return Turn(q, f"{x} is bigger than {y}.", str(x), "counting")
        q = ask(rng, "(which|what) is (smaller|less), [a] or [b]|(which|what) number is (smaller|lower): [a] or [b]|is [a] or [b] smaller", a=a, b=b)
        x, y = min(a, b), max(a, b)
        return Turn(q, f"{x} is smaller than {y}.", str(x), "counting")
    n = rng.randint(0, 100)
    w = facts.number_words(n)
    if kind < 0.9:
        q = ask(rng, "(write|spell|say) [n] (in|as) (words|a word)|how do you (write|spell) [n]|what is [n] in words|[n] in words|how is the number [n] written", n=n)
        return Turn(q, f"{n} is {w}.", w, "counting")
    q = ask(rng, "(write|say|give me) [w] (in|as) digits|what is [w] (in digits|as a number)|[w] in digits|which number is [w]", w=w)
    return Turn(q, f"{cap(w)} is {n}.", str(n), "counting")


OPS = [("+", "plus"), ("-", "minus"), ("*", "times"), ("/", "divided by")]


def small_sum(rng):
    """One operation on numbers from 0 to 100; a few sums go beyond and a few differences below zero."""
    op = rng.choices("+-*/", (4, 4, 2, 1))[0]
    if op == "+":
        a = rng.randint(0, 100)
        b = rng.randint(0, 100 if rng.random() < 0.15 else 100 - a)
        return a, op, b, a + b
    if op == "-":
        a = rng.randint(0, 100)
        b = rng.randint(0, 100 if rng.random() < 0.1 else a)
        return a, op, b, a - b
    b = rng.randint(1, 12)
    c = rng.randint(0, min(12, 100 // b))
    if op == "*":
        return (b, op, c, b * c) if rng.random() < 0.5 else (c, op, b, b * c)
    return b * c, op, b, c


def sum_key(a, op, b, q):
    return f"{a}{op}{b}" if op in "+-" else q


def arithmetic(rng):
    a, op, b, c = small_sum(rng)
    word = dict(OPS)[op]
    kind = rng.random()
    if kind < 0.75:
        q = ask(rng, "what is [a] (([o])|[w]) [b]|what's [a] (([o])|[w]) [b]|[a] (([o])|[w]) [b]|[a] ([o]) [b] =|(calculate|compute|work out|solve) [a] (([o])|[w]) [b]|how much is [a] (([o])|[w]) [b]|[a][o][b]|what does [a] [w] [b] (make|give)", a=a, b=b, o=op, w=word)
        return Turn(q, f"{a} {op} {b} = {c}.", str(c), "arithmetic", sum_key(a, op, b, q))
    name = pick(rng, facts.NAMES)
    thing = pick(rng, ["apples", "coins", "gems", "books", "stones", "cards", "pearls", "rubies", "eggs", "stars"])
    if op == "+":
        q = say(rng, "(I have|[n] has) [a] [t] and (gets|finds|buys) [b] more. How many [t] (are there|is that)?|There are [a] [t] in a box and [b] [t] on a table. How many [t] are there?", a=a, b=b, n=name, t=thing)
    elif op == "-":
        if c < 0:
            return arithmetic(rng)
        q = say(rng, "[n] has [a] [t] and (loses|sells|gives away) [b]. How many [t] are left?|There are [a] [t]. [n] takes [b]. How many [t] are left?", a=a, b=b, n=name, t=thing)
    elif op == "*":
        q = say(rng, "There are [a] boxes with [b] [t] each. How many [t] are there?|[n] has [a] bags of [b] [t]. How many [t] is that?", a=a, b=b, n=name, t=thing)
    else:
        q = say(rng, "[a] [t] are shared by [b] people. How many [t] does each get?|[n] puts [a] [t] into [b] boxes. How many [t] are in each box?", a=a, b=b, n=name, t=thing)
    return Turn(q, f"{a} {op} {b} = {c}, so {c} {thing}.", str(c), "arithmetic", sum_key(a, op, b, q))


def chain(rng):
    """Three terms: needs a step in between. Returns question, steps, result."""
    while True:
        a, b, c = rng.randint(1, 60), rng.randint(1, 40), rng.randint(1, 40)
        o1, o2 = pick(rng, "+-"), pick(rng, "+-*")
        if o2 == "*":
            b, c = rng.randint(1, 9), rng.randint(1, 9)
            m = b * c
            r = a + m if o1 == "+" else a - m
            steps = [f"{b} * {c} = {m}", f"{a} {o1} {m} = {r}"]
        else:
            m = a + b if o1 == "+" else a - b
            r = m + c if o2 == "+" else m - c
            steps = [f"{a} {o1} {b} = {m}", f"{m} {o2} {c} = {r}"]
        if 0 <= m <= 100 and 0 <= r <= 100:
            return f"{a} {o1} {b} {o2} {c}", steps, r


def sums3(rng):
    e, steps, r = chain(rng)
    q = ask(rng, "what is [e]|(calculate|compute|work out|solve) [e]|[e]|[e] =|how much is [e]|what's [e]", e=e)
    return Turn(q, f"{steps[0]}, {steps[1]}.", str(r), "arithmetic", e, thought="\n".join(steps))


def days(rng):
    kind = rng.random()
    d = rng.randrange(7)
    D, M = facts.DAYS, facts.MONTHS
    if kind < 0.15:
        q = ask(rng, "(what|which) day (comes|is) after [d]|what day follows [d]|what is the day after [d]|today is [d], what is tomorrow", d=D[d])
        return Turn(q, f"{D[(d + 1) % 7]} comes after {D[d]}.", D[(d + 1) % 7], "days")
    if kind < 0.3:
        q = ask(rng, "(what|which) day (comes|is) before [d]|what is the day before [d]|today is [d], what was yesterday", d=D[d])
        return Turn(q, f"{D[(d - 1) % 7]} comes before {D[d]}.", D[(d - 1) % 7], "days")
    if kind < 0.5:
        n = rng.randint(2, 13)
        q = ask(rng, "(what|which) day is [n] days after [d]|[n] days after [d]|today is [d], what day is it in [n] days|what day comes [n] days after [d]", n=n, d=D[d])
        return Turn(q, f"{n} days after {D[d]} is {D[(d + n) % 7]}.", D[(d + n) % 7], "days")
    m = rng.randrange(12)
    if kind < 0.6:
        q = ask(rng, "how many days (does [m] have|has [m]|are in [m]|are there in [m])|number of days in [m]|days in [m]", m=M[m])
        return Turn(q, f"{M[m]} has {facts.MONTH_DAYS[m]} days.", str(facts.MONTH_DAYS[m]), "days")
    if kind < 0.7:
        q = ask(rng, "(what|which) month (comes|is) after [m]|what month follows [m]|what is the month after [m]", m=M[m])
        return Turn(q, f"{M[(m + 1) % 12]} comes after {M[m]}.", M[(m + 1) % 12], "days")
    if kind < 0.8:
        q = ask(rng, "(what|which) month (comes|is) before [m]|what is the month before [m]|which month precedes [m]", m=M[m])
        return Turn(q, f"{M[(m - 1) % 12]} comes before {M[m]}.", M[(m - 1) % 12], "days")
    if kind < 0.9:
        if rng.random() < 0.5:
            q = ask(rng, "(what|which) month (of the year |)is number [n]|what is month (number |)[n]|name month [n]|which is month [n] of the year", n=m + 1)
        else:
            q = ask(rng, "which month of the year is [m]|what number is [m]|what number is the month [m]|[m] is which month of the year", m=M[m])
        return Turn(q, f"{M[m]} is month {m + 1}.", None, "days")
    s = pick(rng, list(facts.SEASONS))
    if rng.random() < 0.5:
        mm = pick(rng, facts.SEASONS[s])
        q = ask(rng, "(which|what) season is [m] in|[m] is in (which|what) season|(which|what) season does [m] belong to", m=mm)
        return Turn(q, f"{mm} is in {s}.", s, "days")
    q = ask(rng, "which months are in [s]|name the months of [s]|what are the [s] months|list the months of [s]", s=s)
    x = facts.SEASONS[s]
    return Turn(q, f"{x[0]}, {x[1]} and {x[2]} are in {s}.", None, "days")


def plural(word, n):
    if n == 1:
        return word
    return {"century": "centuries", "dozen": "dozen"}.get(word, word + "s")


def units(rng):
    u, k, v = pick(rng, facts.UNITS)
    n = rng.choice([1, 1, rng.randint(2, 12)])
    us = plural(u, n)
    a = "an" if u[0] in "aeh" and u != "hundred" else "a"
    if n == 1:
        q = ask(rng, "how many [v] (are in|are there in|does it take to make|make|has) [a] [u]|how many [v] is [a] [u]|[a] [u] (is|has) how many [v]|how many [v] are in 1 [u]|convert 1 [u] to [v]", a=a, u=u, v=v)
    else:
        q = ask(rng, "how many [v] (are in|are there in|make|are) [n] [u]|convert [n] [u] (to|into) [v]|[n] [u] in [v]|what is [n] [u] in [v]|[n] [u] (is|are) how many [v]", n=n, u=us, v=v)
    return Turn(q, f"{n} {us} {'is' if n == 1 else 'are'} {n * k} {v}.", str(n * k), "units")


ORDER = ["first", "second", "third", "fourth", "fifth"]


def words_of(rng, n, numbers=False):
    if numbers:
        return [str(x) for x in rng.sample(range(100), n)]
    return rng.sample(facts.WORDS, n)


def lists(rng):
    kind = rng.random()
    n = rng.randint(2, 5)
    numbers = rng.random() < 0.35
    items = words_of(rng, n, numbers)
    text = (", " if rng.random() < 0.8 else " ").join(items)
    if kind < 0.25:
        q = ask(rng, "(reverse|turn around|flip) (|this list: |the list |these: |the order of )[l]|[l] (backwards|in reverse|reversed)|say [l] (backwards|in reverse order)|write (this |)in reverse order: [l]", ".", l=text)
        return Turn(q, ", ".join(reversed(items)) + ".", None, "lists")
    if kind < 0.55:
        if numbers:
            down = rng.random() < 0.25
            if down:
                q = ask(rng, "sort (|these numbers |the numbers )(from big to small|downwards|in descending order|from high to low): [l]|sort [l] (descending|from big to small)", ".", l=text)
            else:
                q = ask(rng, "sort (|these numbers: |the numbers |this: |these: )[l]|put [l] in order|(order|arrange) (these numbers: |the numbers |)[l]|sort [l] (ascending|from small to big)", ".", l=text)
            return Turn(q, ", ".join(map(str, sorted(map(int, items), reverse=down))) + ".", None, "lists")
        q = ask(rng, "sort (|these words: |the words |this: |these: )[l]|put [l] in (alphabetical |)order|(order|arrange) (these words: |the words |)[l]|sort [l] (alphabetically|from a to z)", ".", l=text)
        return Turn(q, ", ".join(sorted(items)) + ".", None, "lists")
    if kind < 0.7:
        i = rng.randrange(n)
        if i == n - 1 and rng.random() < 0.7:
            q = ask(rng, "what is the last (word|item|one|element) (of|in) (the list |)[l]|(the |)last of [l]|which is last: [l]", l=text)
            return Turn(q, f"The last is {items[i]}.", items[i], "lists")
        q = ask(rng, "what is the [o] (word|item|one|element) (of|in) (the list |)[l]|(the |)[o] of [l]|which is the [o]: [l]", l=text, o=ORDER[i])
        return Turn(q, f"The {ORDER[i]} is {items[i]}.", items[i], "lists")
    if kind < 0.8:
        q = ask(rng, "how many (words|items|elements|things) are (in the list |in |there in )[l]|count (the items in |the words in )[l]|how long is the list [l]", l=text)
        return Turn(q, f"There are {n}.", str(n), "lists")
    if kind < 0.9:
        if numbers:
            v = list(map(int, items))
            if rng.random() < 0.5:
                q = ask(rng, "(which|what) is the (biggest|largest|greatest) (number |)of [l]|(find the |)(maximum|biggest|largest) of [l]|(biggest|largest) number in [l]", l=text)
                return Turn(q, f"The biggest is {max(v)}.", str(max(v)), "lists")
            q = ask(rng, "(which|what) is the smallest (number |)of [l]|(find the |)(minimum|smallest) of [l]|smallest number in [l]", l=text)
            return Turn(q, f"The smallest is {min(v)}.", str(min(v)), "lists")
        i = rng.randrange(n)
        if n > 2:
            q = ask(rng, "remove [x] from (the list |)[l]|take [x] out of (the list |)[l]|delete [x] from [l]", ".", x=items[i], l=text)
            return Turn(q, ", ".join(items[:i] + items[i + 1:]) + ".", None, "lists")
        new = pick(rng, facts.WORDS)
        q = ask(rng, "add [x] to (the list |)[l]|append [x] to [l]|put [x] at the end of [l]", ".", x=new, l=text)
        return Turn(q, ", ".join(items + [new]) + ".", None, "lists")
    i = rng.randrange(n)
    inside = rng.random() < 0.5
    x = items[i] if inside else pick(rng, [w for w in facts.WORDS if w not in items]) if not numbers else items[i] if inside else str(rng.choice([y for y in range(100) if str(y) not in items]))
    inside = x in items
    q = ask(rng, "is [x] in (the list |)[l]|does (the list |)[l] contain [x]|(is there a|can you find) [x] in [l]", x=x, l=text)
    return Turn(q, f"Yes, {x} is in the list." if inside else f"No, {x} is not in the list.", "yes" if inside else "no", "lists")


def echo(rng):
    r = rng.random()
    if r < 0.4:
        text = " ".join(words_of(rng, rng.randint(1, 6)))
    elif r < 0.55:
        text = cap(" ".join(words_of(rng, rng.randint(2, 5)))) + pick(rng, [".", "!", "?"])
    else:
        text = random_text(rng).strip()
    if not text:
        text = "x"
    form = pick(rng, ["[x]", "[x]", '"[x]"'])
    q = say(rng, "(|please )(repeat|echo|copy|say|write|type)(| after me| this| exactly|):  " .replace("  ", " ") + form, x=text)
    if rng.random() < 0.7:
        q = cap(q)
    return Turn(q, text, None, "echo")


def spelling(rng):
    w = pick(rng, facts.WORDS + list(facts.COLOURS))
    if rng.random() < 0.6:
        q = ask(rng, "(spell|how do you spell|can you spell|spell out|how is|what is the spelling of) (the word |)" + ('"[w]"' if rng.random() < 0.3 else "[w]"), w=w)
        q = q.replace("How is ", "How do you spell ").replace("how is ", "how do you spell ")
        return Turn(q, "-".join(w.upper()) + ".", None, "spelling")
    if rng.random() < 0.5:
        q = ask(rng, "how many letters (does [w] have|are in [w]|has [w])|number of letters in [w]|count the letters (in|of) [w]", w=w)
        return Turn(q, f"{cap(w)} has {len(w)} letters.", str(len(w)), "spelling")
    last = rng.random() < 0.3
    q = ask(rng, "what is the [f] letter (of|in) [w]|[f] letter of [w]|which letter does [w] [s] with", w=w, f="last" if last else "first", s="end" if last else "start")
    x = w[-1] if last else w[0]
    return Turn(q, f"{cap(w)} {'ends' if last else 'starts'} with {x.upper()}.", x.upper(), "spelling")


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


def person(rng):
    return pick(rng, facts.NAMES) if rng.random() < 0.7 else cap(made_up(rng, 2))


def json_skill(rng):
    kind = rng.random()
    if kind < 0.4:
        fields = {"name": person(rng), "age": rng.randint(1, 99), "city": pick(rng, list(facts.CAPITALS.values())),
                  "colour": pick(rng, facts.COLOURS), "pet": pick(rng, facts.PETS)}
        keys = rng.sample(list(fields), rng.randint(1, 4))
        text = ", ".join(f"{k} {fields[k]}" for k in keys)
        q = ask(rng, "(write|give me|make|return|create) (a |)JSON( object|) (for|with|from)(|:) [t]|(turn|put|convert) (this |)into JSON: [t]|[t] (as|in) JSON|JSON: [t]", "", t=text)
        return Turn(q, dumps({k: fields[k] for k in keys}), None, "json")
    if kind < 0.6:
        name = pick(rng, list(facts.GEMS))
        c, h, _, _ = facts.GEMS[name]
        q = ask(rng, "(give me|describe|write|return|show) [g] (as|in) JSON|[g] as (a |)JSON( object|)|JSON (for|of|about) (the gem |)[g]|make a JSON object for [g]", "", g=name)
        return Turn(q, dumps({"name": name, "colour": c, "hardness": h}), None, "json")
    if kind < 0.8:
        items = words_of(rng, rng.randint(1, 5), rng.random() < 0.4)
        vals = [int(x) if x.isdigit() else x for x in items]
        q = ask(rng, "(write|give me|make|return) (a |)JSON (list|array) (of|with|from)(|:) [l]|(turn|convert) (this |)into a JSON (list|array): [l]|[l] as a JSON (list|array)", "", l=", ".join(items))
        return Turn(q, dumps(vals), None, "json")
    a, b = rng.sample("abcdefghijklmnopqrstuvwxyz", 2)
    x, y = rng.randint(0, 100), rng.randint(0, 100)
    q = ask(rng, "(write|give me|make|return) (a |)JSON( object|) (with|where) [a] = [x] and [b] = [y]|[a] = [x], [b] = [y] as JSON|JSON with [a]: [x] and [b]: [y]", "", a=a, b=b, x=x, y=y)
    return Turn(q, dumps({a: x, b: y}), None, "json")


UNKNOWN_THINGS = """quantum physics|the stock market|photosynthesis|the moon landing|football|the last election|chess openings|black holes|
the price of gold|the Roman Empire|my neighbour|your favourite film|the news|the weather tomorrow|the lottery numbers|jazz|cooking pasta|
the theory of relativity|the internet|dinosaurs|Shakespeare|the world cup|vaccines|inflation|the speed of light|Python programming|
the meaning of life|yoga|taxes|love|string theory|the French Revolution|whales|coffee|volcanoes|DNA|the Beatles|electric cars|
world war two|poetry|evolution|the ocean floor|a good restaurant|baking bread|space travel|my future|the pyramids|philosophy|ancient Rome|
the human brain|tennis|the Mona Lisa|climate change|computers|airplanes|gravity|Mozart|medicine|politics|bitcoin|the president""".replace("\n", "").split("|")

UNKNOWN = [
    "(what is|explain|tell me about|describe|what do you know about|how does one understand|give me facts about|write about|why is there|what can you say about) [t]",
    "(who is|who was|where does [p] live|how old is [p]|tell me about|what does [p] do|do you know|when was [p] born|what is the phone number of) [p]",
    "(what colour is|how hard is|what is the hardness of|what is|tell me about|what is the birthstone like) (a |)[g]",
    "(what is the capital of|where is|how many people live in|what language do they speak in|how big is|what is the population of|how do I get to) [c]",
    "(what does a [w] say|how many legs does a [w] have|what is a [w]|what is the opposite of [w]|what does [w] mean|how do I use a [w]|define [w])",
    "(who won|who invented|who wrote|who discovered|who painted|who directed|when was|why is|how old is|where can I find|how much does it cost to see) (|the )[x]",
    "(write|compose|sing) (me |)(a poem|a song|a story|an essay|a letter|a haiku|a speech) about [t]",
    "(translate|how do you say) (|the word )[w2] (to|in|into) (French|German|Spanish|Latin|Chinese|Italian)",
    "(what will the weather be|will it rain|what happens|what should I do|what should I eat|what should I wear|where should I go) (today|tomorrow|next week|tonight|on [d])",
    "(how do I|how can I|teach me how to|what is the best way to|can you help me) (cook|build|fix|buy|paint|repair|clean|find|sell|grow) (a |the |my )[w2]",
    "(what is the square root of|what is the logarithm of|is it true that people like|what is the factorial of|how many prime numbers are below) [n]",
    "(why|when|how) (do|did|does|will|can) (the |)[w2] [v]",
]


def unknown(rng):
    if rng.random() < 0.06:
        q = random_text(rng).strip() or "?"
        return Turn(q, "I don't know.", None, "something I have not learned")
    country = pick(rng, facts.OTHER_COUNTRIES) if rng.random() < 0.6 else cap(made_up(rng, 2)) + pick(rng, ["ia", "land", "stan", "o"])
    name = cap(made_up(rng, 2)) + (" " + cap(made_up(rng)) if rng.random() < 0.5 else "")
    if rng.random() < 0.4:
        name = pick(rng, facts.NAMES) + " " + cap(made_up(rng, 2))
    gem = made_up(rng, 2) + pick(rng, ["ite", "ine", "ium", "stone", "ite", "ine", ""])
    w = made_up(rng, 2)
    x = pick(rng, facts.WORDS) if rng.random() < 0.4 else made_up(rng, 2) if rng.random() < 0.5 else pick(rng, UNKNOWN_THINGS)
    q = ask(rng, pick(rng, UNKNOWN), t=pick(rng, UNKNOWN_THINGS), p=name, g=gem, c=country, w=w, w2=pick(rng, facts.WORDS), x=x,
            d=pick(rng, facts.DAYS), n=rng.randint(2, 9999),
            v=pick(rng, ["work", "sleep", "move", "break", "shine", "open", "fall", "grow", "sing", "burn", "smell", "stop"]))
    q = re.sub(r"(where does|how old is|what does|when was) (\S+(?: \S+)?) (live|do|born)? \2", r"\1 \2 \3", q)
    return Turn(q, "I don't know.", None, "something I have not learned")


BASE = {
    "chat": (chat, 3), "gems": (gems, 4), "colours": (colours, 2), "capitals": (capitals, 2), "animals": (animals, 2),
    "opposites": (opposites, 2), "counting": (counting, 4), "arithmetic": (arithmetic, 7), "sums3": (sums3, 3), "days": (days, 4),
    "units": (units, 3), "lists": (lists, 9), "echo": (echo, 4), "spelling": (spelling, 4), "json": (json_skill, 3), "unknown": (unknown, 4),
}
_BASE_NAMES = list(BASE)
_BASE_WEIGHTS = [BASE[n][1] for n in _BASE_NAMES]


def base_turn(rng, held_out=False, name=None):
    """A turn of a skill (a random one without a name) from the training or from the held-out side."""
    while True:
        skill = name or rng.choices(_BASE_NAMES, _BASE_WEIGHTS)[0]
        turn = BASE[skill][0](rng)
        if is_held_out(turn.key) == held_out:
            turn.skill = skill
            return turn


# ---- system prompts --------------------------------------------------------------------------------------------

def short_form(turn):
    return turn.word


def style(rng, turn):
    """A system prompt and what the turn's answer becomes under it, or None if they do not fit."""
    kind = rng.randrange(10)
    a = turn.answer
    if kind == 0:
        s = say(rng, "(answer|reply|write|speak|respond) (only |)in (capital letters|capitals|upper case|all caps)(|.)|use (only |)capital letters(|.)")
        return "capitals", cap(s), a.upper()
    if kind == 1:
        s = say(rng, "(answer|reply|write|speak|respond) (only |)in (small letters|lower case|lowercase)(|.)|use (only |)small letters(|.)")
        return "lower", cap(s), a.lower()
    if kind == 2:
        s = say(rng, "(talk|speak|answer|reply|write) like a pirate(|.)|you are a pirate(|.)|(answer|reply) in pirate style(|.)|be a pirate(|.)")
        return "pirate", cap(s), f"Arr! {a} Yo ho!"
    if kind == 3:
        if not turn.word:
            return None
        s = say(rng, "(answer|reply|respond) (only |)(with|in) one word(|.)|(answer|reply) as briefly as you can(|.)|use one word(| only)(|.)|give (only |)the shortest answer(|.)|one word answers only(|.)")
        return "short", cap(s), turn.word
    if kind in (4, 5):
        w = cap(pick(rng, facts.WORDS)) if rng.random() < 0.6 else cap(made_up(rng))
        if kind == 4:
            s = say(rng, "(always |)(start|begin) (every answer|each answer|your answers|your reply|all answers) with (the word |)" + pick(rng, ['"[w]"', "[w]"]) + "(|.)", w=w)
            return "start", cap(s), f"{w} {a}"
        s = say(rng, "(always |)(end|finish) (every answer|each answer|your answers|your reply|all answers) with (the word |)" + pick(rng, ['"[w]"', "[w]"]) + "(|.)", w=w)
        return "end", cap(s), f"{a} {w}"
    if kind == 6:
        n = person(rng)
        s = say(rng, "(call|address) the user (as |)[n](|.)|the (user's name|name of the user) is [n], (use it|say it)(|.)|always say the user's name, [n](|.)", n=n)
        return "name", cap(s), f"{n}: {a}"
    if kind == 7:
        s = say(rng, "(answer|reply|respond) in JSON with the key " + pick(rng, ['"answer"', "answer"]) + "(|.)|(always |)return JSON with one key, answer(|.)|use JSON: the key is answer(|.)")
        return "json", cap(s), dumps({"answer": a})
    if kind == 8:
        s = say(rng, "(say|write|repeat|give) (everything|every answer|each answer|all answers) twice(|.)|(answer|reply) twice(|.)")
        return "twice", cap(s), f"{a} {a}"
    w = cap(pick(rng, ["no comment", "beep", "moo", "hmm", "later", "ask me tomorrow", "I am asleep", "yes", "no", "never", pick(rng, facts.WORDS)]))
    s = say(rng, "(always|only) (answer|reply|say|respond) (with |)" + '"[w]"' + "(|.)|whatever the user asks, (say|answer|reply) " + '"[w]"' + "(|.)", w=w)
    return "fixed", cap(s), w


PLAIN_SYSTEM = ["You are a helpful assistant.", "You are Carat.", "Be helpful.", "You are a small model. Answer briefly.",
                "Answer the user's questions.", "You are a friendly assistant.", "Be brief.", "Help the user."]


def named_system(rng):
    n = person(rng)
    s = say(rng, "your name is [n](|.)|you are [n](|.)|you are called [n](|.)|you are [n], a (helpful |friendly |)assistant(|.)", n=n)
    q = ask(rng, "who are you|what is your name|what's your name|tell me your name|how are you called|introduce yourself|what are you called")
    return cap(s), Turn(q, f"I am {n}.", n, "names", key=s + q)


def system_item(rng, held_out=False):
    """(kind, system text, turn with the styled answer)"""
    while True:
        if rng.random() < 0.12:
            s, t = named_system(rng)
            if is_held_out(t.key) == held_out:
                return "persona", s, t
            continue
        turn = base_turn(rng, held_out)
        made = style(rng, turn)
        if made is None or (made[0] in ("capitals", "lower", "json", "twice") and turn.skill in ("echo", "json", "unknown") and rng.random() < 0.7):
            continue
        kind, s, a = made
        t = Turn(turn.user, a, turn.word, turn.topic, turn.key)
        t.skill = turn.skill
        return kind, s, t


# ---- conversations ---------------------------------------------------------------------------------------------

def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def memory_facts(rng):
    """statement, acknowledgement, question, answer, answer if unknown"""
    kind = rng.randrange(7)
    if kind == 0:
        n = person(rng)
        return ("name", ask(rng, "my name is [n]|I am [n]|I'm [n]|call me [n]|hi, I am [n]|hello, my name is [n]|this is [n]", ".", n=n),
                f"Nice to meet you, {n}.", ask(rng, "what is my name|what's my name|who am I|do you remember my name|tell me my name|how am I called"),
                f"Your name is {n}.")
    if kind == 1:
        c = pick(rng, facts.COLOURS)
        return ("colour", ask(rng, "my favourite (colour|color) is [c]|I like [c] best|the colour I like most is [c]|I love the colour [c]", ".", c=c),
                f"I will remember: your favourite colour is {c}.",
                ask(rng, "what is my favourite (colour|color)|which colour do I like (best|most)|what colour do I like|what's my favourite colour"),
                f"Your favourite colour is {c}.")
    if kind == 2:
        p, n = pick(rng, facts.PETS), person(rng)
        return ("pet", ask(rng, "my [p] is called [n]|I have a [p] (called|named) [n]|my [p]'s name is [n]|I own a [p] named [n]", ".", p=p, n=n),
                f"I will remember: your {p} is called {n}.",
                ask(rng, "what is my [p] called|what is the name of my [p]|what's my [p]'s name|how is my [p] called", p=p),
                f"Your {p} is called {n}.")
    if kind == 3:
        a = rng.randint(4, 99)
        return ("age", ask(rng, "I am [a] years old|I'm [a] (years old|)|my age is [a]|I turned [a]", ".", a=a), f"I will remember: you are {a} years old.",
                ask(rng, "how old am I|what is my age|what's my age|do you know how old I am"), f"You are {a} years old.")
    if kind == 4:
        k = pick(rng, list(facts.CAPITALS.values()))
        return ("city", ask(rng, "I live in [k]|my home is (in |)[k]|I am from [k]|my city is [k]", ".", k=k), f"I will remember: you live in {k}.",
                ask(rng, "where do I live|which city do I live in|what city am I from|where am I from|where is my home"), f"You live in {k}.")
    if kind == 5:
        g = pick(rng, list(facts.GEMS))
        return ("gem", ask(rng, "my favourite (gem|stone) is [g]|the gem I like (best|most) is [g]|I like [g] more than any other gem", ".", g=g),
                f"I will remember: your favourite gem is {g}.",
                ask(rng, "what is my favourite (gem|stone)|which gem do I like (best|most)|what's my favourite gem"), f"Your favourite gem is {g}.")
    n = rng.randint(0, 999)
    return ("number", ask(rng, "(remember |)(the number|my number is|my lucky number is) [n]|remember [n]", ".", n=n), f"I will remember: the number is {n}.",
            ask(rng, "what is (the|my) (lucky |)number|which number did I (say|tell you|give you)|what number did I say|what's my number"), f"The number is {n}.")


NOT_TOLD = {"name": "You have not told me your name.", "colour": "You have not told me your favourite colour.",
            "age": "You have not told me your age.", "city": "You have not told me where you live.",
            "gem": "You have not told me your favourite gem.", "number": "You have not told me a number.",
            "pet": "You have not told me about a pet."}


def memory_dialogue(rng, held_out=False, fillers=None):
    """Facts told, other questions, then a question about the facts."""
    told, messages = {}, []
    facts_told = []
    if rng.random() < 0.05:
        f = memory_facts(rng)
        return [user(f[3]), assistant(NOT_TOLD[f[0]])], f[3]
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        f = memory_facts(rng)
        if f[0] not in told:
            told[f[0]] = f
            facts_told.append(f)
    for f in facts_told:
        messages += [user(f[1]), assistant(f[2])]
        for _ in range(rng.choice([0, 0, 1, 2]) if fillers is None else fillers):
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
    rng.shuffle(facts_told)
    if rng.random() < 0.12:
        f = memory_facts(rng)
        if f[0] not in told:
            messages += [user(f[3]), assistant(NOT_TOLD[f[0]])]
            return messages, f[0] + f[3]
    f = facts_told[0]
    messages += [user(f[3]), assistant(f[4])]
    return messages, messages[0]["content"] + f[3]


def running_sum(rng):
    while True:
        a, op, b, c = small_sum(rng)
        if 0 <= c <= 100:
            break
    q = ask(rng, "what is [a] [o] [b]|[a] [o] [b]|how much is [a] [o] [b]", a=a, b=b, o=op)
    messages = [user(q), assistant(f"{a} {op} {b} = {c}.")]
    key = f"{a}{op}{b}"
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.5 and c < 100:
            n = rng.randint(0, 100 - c)
            q = ask(rng, "add [n]|plus [n]|(and |now )(add|plus) [n]|add [n] to that|and [n] more", ".", n=n)
            messages += [user(q), assistant(f"{c} + {n} = {c + n}.")]
            c += n
        else:
            n = rng.randint(0, c)
            q = ask(rng, "(subtract|minus|take away) [n]|(and |now )(subtract|minus) [n]|take [n] from that|and [n] less", ".", n=n)
            messages += [user(q), assistant(f"{c} - {n} = {c - n}.")]
            c -= n
        key += q
    return messages, key


def ellipsis(rng):
    """A question, then the same about something else."""
    kind = rng.randrange(4)
    follow = lambda x: ask(rng, "(and|what about|how about|and what about|now) [x]|and (for |of |)[x]".replace("(for |of |)", ""), x=x)
    messages = []
    n = rng.randint(2, 3)
    if kind == 0:
        names = rng.sample([g for g in facts.GEMS if g != "opal"], n)
        for i, g in enumerate(names):
            q = ask(rng, "what colour is [g]|what is the colour of [g]", g=g) if i == 0 else follow(g)
            messages += [user(q), assistant(f"{cap(g)} is {facts.GEMS[g][0]}.")]
    elif kind == 1:
        names = rng.sample(list(facts.CAPITALS), n)
        for i, c in enumerate(names):
            q = ask(rng, "what is the capital of [c]|capital of [c]", c=c) if i == 0 else follow(c)
            messages += [user(q), assistant(f"The capital of {c} is {facts.CAPITALS[c]}.")]
    elif kind == 2:
        names = rng.sample(list(facts.GEMS), n)
        for i, g in enumerate(names):
            q = ask(rng, "how hard is [g]|what is the hardness of [g]", g=g) if i == 0 else follow(g)
            messages += [user(q), assistant(f"The hardness of {g} is {facts.GEMS[g][1]}.")]
    else:
        pairs = rng.sample(facts.OPPOSITES, n)
        for i, (a, b) in enumerate(pairs):
            q = ask(rng, "what is the opposite of [a]|opposite of [a]", a=a) if i == 0 else follow(a)
            messages += [user(q), assistant(f"The opposite of {a} is {b}.")]
    return messages, "".join(m["content"] for m in messages if m["role"] == "user")


def look_back(rng):
    """Turns, then a question about what was said."""
    messages = []
    for _ in range(rng.randint(1, 3)):
        t = base_turn(rng, name=rng.choice(["gems", "colours", "capitals", "arithmetic", "opposites", "days", "animals"]))
        messages += [user(t.user), assistant(t.answer)]
    kind = rng.randrange(3)
    if kind == 0:
        q = ask(rng, "(repeat|say) (that|your last answer|your answer)( again|)|what did you (just |)say|say it again|once more")
        a = messages[-1]["content"]
    elif kind == 1:
        q = ask(rng, "what did I (just |)(ask|say)|what was my last question|repeat my (last |)question|what did I ask you last")
        a = "You asked: " + messages[-2]["content"]
    else:
        q = ask(rng, "what was my first question|what did I ask first|what was the first thing I asked|repeat my first question")
        a = "You asked: " + messages[0]["content"]
    messages += [user(q), assistant(a)]
    return messages, "".join(m["content"] for m in messages if m["role"] == "user")


def multi_turn(rng, held_out=False):
    """(messages, key): the last answer depends on earlier turns."""
    while True:
        r = rng.random()
        if r < 0.5:
            m, key = memory_dialogue(rng)
        elif r < 0.7:
            m, key = running_sum(rng)
        elif r < 0.85:
            m, key = ellipsis(rng)
        else:
            m, key = look_back(rng)
        if is_held_out(key) == held_out:
            return m


# ---- thinking --------------------------------------------------------------------------------------------------

def thinking_turn(rng, held_out=False):
    """A turn with a thought: real steps where the task has some, a word about the topic elsewhere."""
    r = rng.random()
    while True:
        if r < 0.5:
            e, steps, c = chain(rng)
            q = ask(rng, "what is [e]|(calculate|compute|work out|solve) [e]|[e]|[e] =|how much is [e]|what's [e]", e=e)
            t = Turn(q, f"{e} = {c}.", str(c), "arithmetic", e, "\n".join(steps))
        elif r < 0.65:
            n = rng.randint(3, 5)
            numbers = rng.random() < 0.5
            items = words_of(rng, n, numbers)
            order = sorted(items, key=int) if numbers else sorted(items)
            q = ask(rng, "sort [l]|sort (these: |this list: )[l]|put [l] in order", ".", l=", ".join(items))
            t = Turn(q, ", ".join(order) + ".", None, "lists", q, "\n".join(f"{ORDER[i]}: {x}" for i, x in enumerate(order)))
        elif r < 0.8:
            name = pick(rng, facts.NAMES)
            a, b = rng.randint(1, 50), rng.randint(1, 50)
            c = rng.randint(0, a + b)
            thing = pick(rng, ["apples", "coins", "gems", "books", "stones", "cards", "pearls"])
            q = say(rng, "[n] has [a] [t], (gets|finds) [b] more and (loses|gives away) [c]. How many [t] are left?", n=name, a=a, b=b, c=c, t=thing)
            t = Turn(q, f"{a + b - c} {thing} are left.", str(a + b - c), "arithmetic", f"{a}+{b}-{c}", f"{a} + {b} = {a + b}\n{a + b} - {c} = {a + b - c}")
        else:
            t = base_turn(rng, held_out)
            t.thought = f"This is about {t.topic}."
            if t.skill == "sums3":
                continue
        if is_held_out(t.key) == held_out:
            return t


# ---- tools -----------------------------------------------------------------------------------------------------

CITIES = list(facts.CAPITALS.values())


def tool(name, description, props=None, required=None):
    f = {"name": name, "description": description, "parameters": {"type": "object", "properties": props or {}}}
    if required:
        f["parameters"]["required"] = required
    return {"type": "function", "function": f}


def calculator(rng):
    name = "calculator" if rng.random() < 0.7 else pick(rng, ["calculate", "calc", "compute", "math"])
    arg = "expression" if rng.random() < 0.8 else pick(rng, ["expr", "input", "formula"])
    d = pick(rng, ["Calculates an arithmetic expression.", "Evaluate an expression", "A calculator", "Does arithmetic.",
                   "Computes the value of an expression.", "Evaluates arithmetic, for example 2 + 3 * 4.", ""])
    p = {"type": "string"}
    if rng.random() < 0.6:
        p["description"] = pick(rng, ["The expression", "What to calculate", "An arithmetic expression", "For example 12 * 7"])
    return tool(name, d, {arg: p}, [arg] if rng.random() < 0.8 else None), name, arg


def clock(rng):
    name = "clock" if rng.random() < 0.7 else pick(rng, ["get_time", "time", "current_time", "now"])
    d = pick(rng, ["Tells the time.", "The current time", "Returns the time of day.", "A clock", "Gives the current time in a city.", ""])
    arg = None
    props = {}
    if rng.random() < 0.5:
        arg = "city" if rng.random() < 0.7 else pick(rng, ["place", "timezone", "location"])
        props[arg] = {"type": "string"}
        if rng.random() < 0.5:
            props[arg]["description"] = pick(rng, ["The city", "Where", "City name"])
    return tool(name, d, props), name, arg


def weather(rng):
    name = "get_weather" if rng.random() < 0.6 else pick(rng, ["weather", "current_weather", "forecast"])
    arg = "city" if rng.random() < 0.8 else "location"
    d = pick(rng, ["Get the weather", "The weather in a city", "Current weather.", "Tells the weather."])
    p = {"type": "string"}
    if rng.random() < 0.5:
        p["description"] = pick(rng, ["The city", "City name"])
    return tool(name, d, {arg: p}, [arg] if rng.random() < 0.7 else None), name, arg


def big_expression(rng):
    op = pick(rng, "+-*/*+")
    if op == "*":
        a, b = rng.randint(2, 999), rng.randint(2, 999)
        return a, op, b, a * b
    if op == "/":
        b, c = rng.randint(2, 99), rng.randint(2, 999)
        return b * c, op, b, c
    a, b = rng.randint(1, 9999), rng.randint(1, 9999)
    return a, op, b, a + b if op == "+" else a - b


def tool_item(rng, held_out=False):
    """(messages, tools, index of the assistant's first own message). All its messages are to be learned."""
    while True:
        m, tools, key, start = _tool_item(rng, held_out)
        if is_held_out(key) == held_out:
            return m, tools, start


def _tool_item(rng, held_out):
    calc, calc_name, calc_arg = calculator(rng)
    clk, clk_name, clk_arg = clock(rng)
    wea, wea_name, wea_arg = weather(rng)
    kind = rng.choices(["calc", "clock", "weather", "none", "missing"], (5, 3, 1.5, 2, 1))[0]
    tools = [t for t, need in ((calc, kind == "calc"), (clk, kind == "clock"), (wea, kind == "weather")) if need]
    if kind == "none":
        tools = [pick(rng, [calc, clk, wea])]
    extra = [t for t in (calc, clk, wea) if t not in tools]
    if kind == "missing":
        what = pick(rng, ["time", "weather"])
        tools = [calc] + ([wea] if what == "time" and rng.random() < 0.4 else [clk] if what == "weather" and rng.random() < 0.4 else [])
    elif rng.random() < 0.6:
        tools.append(pick(rng, extra))
    rng.shuffle(tools)
    city = pick(rng, CITIES)
    has_calc = calc in tools
    start = []
    if rng.random() < 0.15:
        t = base_turn(rng, name=pick(rng, ["gems", "capitals", "colours", "chat"]))
        start = [user(t.user), assistant(t.answer)]
    if kind == "none":
        t = base_turn(rng, held_out, name=pick(rng, ["gems", "capitals", "colours", "chat", "opposites", "days", "lists", "unknown"]))
        return start + [user(t.user), assistant(t.answer)], tools, t.key, len(start)
    if kind == "missing":
        if what == "time":
            q = ask(rng, "what time is it( in [k]|)|what's the time( in [k]|)|tell me the time|how late is it", k=city)
            return start + [user(q), assistant("I have no clock.")], tools, q, len(start)
        q = ask(rng, "what is the weather (in|like in) [k]|how is the weather in [k]", k=city)
        return start + [user(q), assistant("I have no weather tool.")], tools, q, len(start)
    fail = rng.random() < 0.04
    if kind == "calc":
        a, op, b, c = big_expression(rng) if rng.random() < 0.8 else small_sum(rng)
        w = dict(OPS)[op]
        q = ask(rng, "what is [a] (([o])|[w]) [b]|what's [a] (([o])|[w]) [b]|[a] (([o])|[w]) [b]|(calculate|compute|work out) [a] (([o])|[w]) [b]|how much is [a] (([o])|[w]) [b]|[a][o][b]", a=a, b=b, o=op, w=w)
        args, result = {calc_arg: f"{a} {op} {b}"}, str(c)
        name, final, key = calc_name, f"{a} {op} {b} = {c}.", f"{a}{op}{b}"
        thought, after = f"I need the {calc_name} tool for {a} {op} {b}.", f"The result is {c}."
    elif kind == "clock":
        h, mi = rng.randint(0, 23), rng.randint(0, 59)
        result = f"{h:02d}:{mi:02d}" if rng.random() < 0.7 else f"{pick(rng, facts.DAYS)} {h}:{mi:02d}"
        in_city = rng.random() < 0.5
        if in_city:
            q = ask(rng, "what time is it in [k]|what's the time in [k]|tell me the time in [k]|how late is it in [k]|what is the (current |)time in [k]", k=city)
            args = {clk_arg: city} if clk_arg else {}
        else:
            q = ask(rng, "what time is it( now|)|what's the time|tell me the time|how late is it|what is the (current |)time|do you know what time it is|the time")
            args = {}
        name, final, key = clk_name, f"It is {result} in {city}." if in_city else f"It is {result}.", q + result
        thought, after = f"I need the {clk_name} tool.", f"The time is {result}."
    else:
        result = f"{pick(rng, ['sunny', 'rain', 'cloudy', 'snow', 'windy', 'fog', 'storm', 'clear'])}, {rng.randint(-9, 38)} degrees"
        q = ask(rng, "what is the weather (in|like in) [k]|how is the weather in [k]|weather in [k]|tell me the weather in [k]|what's the weather in [k]", k=city)
        args = {wea_arg: city}
        name, final, key = wea_name, f"The weather in {city}: {result}.", q + result
        thought, after = f"I need the {wea_name} tool.", f"The weather is {result}."
    if fail:
        result = pick(rng, ["error: " + made_up(rng), "error: not available", "error: bad input"])
        final, after = "The tool failed: " + result[7:] + ".", "The tool failed."
    content = result
    if rng.random() < 0.1:
        content = dumps({"result": result})
    elif kind != "clock" and rng.random() < 0.05 and result.lstrip("-").isdigit():
        content = int(result)
    call_id = "call_1"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}}
    m = start + [user(q), {"role": "assistant", "tool_calls": [call], "content": "", "thought": thought},
                 {"role": "tool", "tool_call_id": call_id, "name": name, "content": content},
                 {"role": "assistant", "content": final, "thought": after}]
    return m, tools, key, len(start)


def with_thoughts(messages, thinking):
    """Turns the `thought` notes into reasoning, or drops them."""
    out = []
    for m in messages:
        m = dict(m)
        thought = m.pop("thought", None)
        if thinking and thought:
            m["reasoning"] = thought
        out.append(m)
    return out


# ---- training conversations ------------------------------------------------------------------------------------

def conversation(rng, max_turns=3):
    """A random training conversation: (messages, tools, thinking, indices to learn)."""
    r = rng.random()
    if r < 0.36:
        n = rng.choices(range(1, max_turns + 1), [1.0 / k for k in range(1, max_turns + 1)])[0]
        messages = []
        if rng.random() < 0.06:
            messages.append({"role": "system", "content": pick(rng, PLAIN_SYSTEM)})
        for _ in range(n):
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if r < 0.55:
        kind, s, t = system_item(rng)
        messages = [{"role": "system", "content": s}, user(t.user), assistant(t.answer)]
        return messages, None, False, [2]
    if r < 0.69:
        messages = multi_turn(rng)
        return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if r < 0.86:
        messages = []
        if rng.random() < 0.1:
            messages.append({"role": "system", "content": pick(rng, PLAIN_SYSTEM)})
        if rng.random() < 0.25:
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        t = thinking_turn(rng)
        messages += [user(t.user), {"role": "assistant", "content": t.answer, "reasoning": t.thought}]
        return messages, None, True, [len(messages) - 1]
    messages, tools, start = tool_item(rng)
    if rng.random() < 0.1:
        messages = [{"role": "system", "content": pick(rng, PLAIN_SYSTEM)}] + messages
        start += 1
    thinking = rng.random() < 0.25
    if thinking and "thought" not in messages[-1]:
        messages[-1]["thought"] = "No tool is needed." if messages[-1]["content"][:9] != "I have no" else "There is no tool for this."
    messages = with_thoughts(messages, thinking)
    return messages, tools, thinking, [i for i, m in enumerate(messages) if m["role"] == "assistant" and i >= start]


def long_conversation(rng, turns):
    """Many turns, some of them about earlier ones."""
    messages = []
    while len(messages) < 2 * turns:
        if rng.random() < 0.6:
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        else:
            messages += memory_dialogue(rng, fillers=rng.randint(0, 3))[0]
    return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
